#include "hub/gguf/gguf_keys.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace flatshard {

int64_t GgufKeys::size(const char* key, std::optional<int64_t> absent) const {
  const std::string name = prefix_ + key;
  const auto found = file_.metadata().find(name);
  if (found == file_.metadata().end() && absent) return *absent;
  const auto* each =
      found == file_.metadata().end() ? nullptr : std::get_if<std::vector<int64_t>>(&found->second);
  const bool equal = each && !each->empty() &&
                     std::all_of(each->begin(), each->end(), [&](int64_t n) { return n == each->front(); });
  const int64_t value = equal ? each->front() : file_.value<int64_t>(name);
  check(value >= 0 && value <= INT32_MAX, file_.path(), ": ", name, " is ", value,
        ", must be a size of at most 32 bits");
  return value;
}

double GgufKeys::real(const char* key, double absent) const {
  const double* value = file_.find_value<double>(prefix_ + key);
  return value ? shortest_decimal(*value) : absent;
}

std::string GgufKeys::text(const char* key) const {
  const std::string* value = file_.find_value<std::string>(prefix_ + key);
  return value ? *value : "";
}

std::vector<int64_t> GgufKeys::list(const char* key) const {
  const auto* value = file_.find_value<std::vector<int64_t>>(prefix_ + key);
  return value ? *value : std::vector<int64_t>{};
}

double shortest_decimal(double value) {
  for (int digits = 1; digits < 9; ++digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    const double decimal = std::strtod(text, nullptr);
    if (static_cast<float>(decimal) == static_cast<float>(value)) return decimal;
  }
  return value;
}

}  // namespace flatshard
