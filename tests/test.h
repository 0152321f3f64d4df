#pragma once
// Included by every test: doctest, and skip() for tests that this machine or build cannot run. A skip is
// counted and printed with its reason, not as a pass.

#include <initializer_list>
#include <string>

#include <doctest/doctest.h>

#include "runtime/check.h"

namespace flatshard::test {

// Marks the running test case as skipped; return from it right after.
void skip(const std::string& reason);

// Sets a function that is called at the end of every test case. If `problem` returns a text, a test case that
// had passed fails with it.
void at_end_of_tests(std::string (*problem)());

// Returns the text of the Error that `work` throws; "" if it throws none.
template <class Work>
std::string error_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Names, for a message, the first of the parts (a key, its value, the bound) that the text does not
// contain in this order: "\"64\" is not in: block is 48, must ...". Returns "" if it contains all of them.
std::string missing_from(const std::string& text, std::initializer_list<std::string> parts);

}  // namespace flatshard::test
