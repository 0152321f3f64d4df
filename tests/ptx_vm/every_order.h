#pragma once
// Loops for tests that run on the PTX machine and, in flatshard_tests, on a GPU: there each runs once. What
// the machine finds wrong is a failure.

#include <functional>

namespace flatshard::ptx_vm {

// Every order of warps, with 1, 2, 3 or as many blocks as there is room for at a time; asynchronous work is
// done early, late or at random in turn.
void for_every_order(const std::function<void()>& body);
// Every order in which tensor cores may add.
void for_every_order_of_sums(const std::function<void()>& body);
// As it is; on the machine, shared memory must take no more turns of its banks than it needs.
void expect_no_bank_conflicts(const std::function<void()>& body);

}  // namespace flatshard::ptx_vm
