#pragma once
// Errors found by checks that do not stop at the first: the user sees all of them at once.
//
//   Problems problems;
//   problems.check(c.lr > 0, "lr is ", c.lr, ", must be positive");
//   problems.attempt([&] { batching = batching_of(c, ranks); });
//   problems.raise();

#include <string>
#include <vector>

#include "runtime/check.h"

namespace flatshard {

// Several errors in one; what() lists one per line.
struct Errors : Error {
  Errors(std::vector<std::string> errors, std::source_location at);
  std::vector<std::string> each;
};

class Problems {
 public:
  // Records a problem unless the condition holds; returns whether it does.
  template <class... Parts>
  bool check(Condition condition, const Parts&... parts) {
    if (!condition.holds) add(str(parts...), condition.where);
    return condition.holds;
  }
  // Runs a function that throws on the first problem, and records that; returns whether there was none.
  template <class Work>
  bool attempt(Work&& work) {
    try {
      work();
      return true;
    } catch (const Error& error) {
      add(error);
      return false;
    }
  }
  void add(std::string text, std::source_location where = std::source_location::current());
  void add(const Error& error);  // adds each of several Errors

  const std::vector<std::string>& texts() const { return texts_; }
  bool empty() const { return texts_.empty(); }
  // Throws an Error if there is one problem, Errors if there are several.
  void raise() const;

 private:
  std::vector<std::string> texts_;  // messages without duplicates
  std::source_location first_;
};

}  // namespace flatshard
