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

// Sets what every test case is asked at its end. A text that `problem` returns fails a test case that had
// passed.
void at_end_of_tests(std::string (*problem)());

// The text of the Error that `work` throws; "" if it throws none.
template <class Work>
std::string error_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// For messages: which of these parts, such as a key, its value and the bound, the text does not contain in
// this order: "\"64\" is not in: block is 48, must ..."; "" if it has all of them.
std::string missing_from(const std::string& text, std::initializer_list<std::string> parts);

}  // namespace flatshard::test
