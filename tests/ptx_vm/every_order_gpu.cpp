#include "tests/ptx_vm/every_order.h"

namespace flatshard::ptx_vm {

void for_every_order(const std::function<void()>& body) { body(); }
void in_some_order(int, const std::function<void()>& body) { body(); }
void for_every_order_of_sums(const std::function<void()>& body) { body(); }
void expect_no_bank_conflicts(const std::function<void()>& body) { body(); }

}  // namespace flatshard::ptx_vm
