#include "runtime/reason.h"

#include <new>
#include <system_error>

#include "runtime/problems.h"
#include "runtime/text.h"

namespace flatshard {

std::string reason_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error))
    return "out of host memory: close other programs, raise the limit (ulimit -v, or that of the container), "
           "or ask for less: a smaller batch, a smaller model or more ranks";
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  if (system && system->code() == std::errc::resource_unavailable_try_again)
    return "cannot start another thread: raise the limit on processes and threads (ulimit -u, or pids.max of "
           "the container)";
  return *error.what() ? error.what() : "failed";
}

std::string report_of(const std::exception& error) {
  const auto* const several = dynamic_cast<const Errors*>(&error);
  if (!several) return printable(reason_of(error));
  constexpr size_t kMostShown = 1000;  // only a file that is not a config has more
  const size_t count = several->each.size();
  std::string report = str(count, " problems:");
  for (size_t i = 0; i < count && i < kMostShown; ++i) report += "\n  " + printable(several->each[i]);
  if (count > kMostShown) report += str("\n  and ", count - kMostShown, " more");
  return report;
}

}  // namespace flatshard
