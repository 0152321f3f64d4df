#include "runtime/problems.h"

#include <algorithm>
#include <utility>

namespace flatshard {
namespace {

std::string lines(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : "\n") + text;
  return joined;
}

}  // namespace

Errors::Errors(std::vector<std::string> errors, std::source_location at)
    : Error(lines(errors), at), each(std::move(errors)) {}

void Problems::add(std::string text, std::source_location where) {
  if (texts_.empty()) first_ = where;
  constexpr std::ptrdiff_t kMostCompared = 1000;  // keeps the time linear for a file full of problems
  const auto end = texts_.begin() + std::min(std::ssize(texts_), kMostCompared);
  if (std::find(texts_.begin(), end, text) == end) texts_.push_back(std::move(text));
}

void Problems::add(const Error& error) {
  if (const auto* several = dynamic_cast<const Errors*>(&error))
    for (const std::string& text : several->each) add(text, several->where);
  else
    add(error.what(), error.where);
}

void Problems::raise() const {
  if (texts_.size() == 1) fail(texts_.front(), first_);
  if (!texts_.empty()) throw Errors(texts_, first_);
}

}  // namespace flatshard
