#include "comm/collective.h"

#include <mutex>
#include <set>

#include "runtime/check.h"

namespace flatshard {

std::string describe(const Collective& call) {
  return str(call.verb, " of ", call.label, " on ", call.communicator, ", ", call.bytes, " bytes");
}

const char* intern(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string>& texts =
      *new std::set<std::string>;  // never destroyed: threads may still read it
  const std::lock_guard lock(mutex);
  return texts.insert(text).first->c_str();
}

}  // namespace flatshard
