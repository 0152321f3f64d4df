#pragma once
// Errors that say where they happened.

#include <string>

#include "runtime/check.h"

namespace flatshard {

// Returns the result of `work`. An Error that it throws gets "place: " in front of its text.
template <class Work>
auto with_place(const std::string& place, Work&& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw Error(place + ": " + error.what(), error.where);
  }
}

}  // namespace flatshard
