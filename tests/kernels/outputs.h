#pragma once
// The outputs of a benchmark case, for tests that compare bits or values.

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

// The values of all outputs of a new run, by name.
inline bench::Values output_values(const bench::Case& c, Device device) {
  bench::Setup setup(c, {.device = device});
  setup.run();
  bench::Values all;
  for (const bench::Arg& arg : c.args)
    if (is_written(arg)) all[arg.name] = setup.values(arg.name);
  return all;
}

}  // namespace flatshard::test
