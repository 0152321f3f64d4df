#pragma once
// The outputs of a benchmark case, for tests that compare bits.

#include <vector>

#include "bench/case.h"

namespace flatshard::test {

inline bool is_written(const bench::Arg& arg) {
  return arg.role == bench::Role::output || arg.role == bench::Role::updated;
}

// The bytes of all outputs of a new run.
inline std::vector<std::vector<unsigned char>> output_bytes(const bench::Case& c,
                                                            bench::SetupOptions options = {}) {
  bench::Setup setup(c, options);
  setup.run();
  std::vector<std::vector<unsigned char>> all;
  for (const bench::Arg& arg : c.args)
    if (is_written(arg)) all.push_back(setup.bytes(arg.name));
  return all;
}

}  // namespace flatshard::test
