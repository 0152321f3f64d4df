#pragma once
// Loops over schedules, for tests that run on the PTX machine and, in flatshard_tests, on a GPU, where each
// loop runs once. A finding of the machine fails the test.

#include <functional>

namespace flatshard::ptx_vm {

// Runs `body` in every warp order, with 1, 2, 3 and the maximal number of resident blocks. Asynchronous work
// runs early, late or at a random time.
void for_every_order(const std::function<void()>& body);
// Runs `body` in one of these orders. Many cases with different `which` cover all orders.
void in_some_order(int which, const std::function<void()>& body);
// Runs `body` in every summation order of the tensor cores.
void for_every_order_of_sums(const std::function<void()>& body);
// Runs `body` once. On the machine, shared-memory accesses must have no bank conflicts.
void expect_no_bank_conflicts(const std::function<void()>& body);

}  // namespace flatshard::ptx_vm
