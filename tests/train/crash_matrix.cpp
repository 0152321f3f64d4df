// crash_matrix FOLDER [STRIDE]: injects a fault into every STRIDE-th file system call of two saves, by
// default into each: killed, failing, disk full; with and without a writer thread; on one rank, and on each
// of two. Prints how many runs left which checkpoint. The exit code is 1 if a checkpoint is mixed or missing.

#include <cstdlib>
#include <iostream>

#include "runtime/check.h"
#include "tests/train/crashes.h"

using namespace flatshard;
using namespace flatshard::test;

namespace {

struct Place {
  int ranks, on_rank;
};
constexpr Place kPlaces[] = {{1, 0}, {2, 0}, {2, 1}};

void sweep_all(const std::string& folder, int stride) {
  Crashes crashes(folder);
  for (const Place place : kPlaces)
    for (const std::string what : {"kill", "fail", "full"})
      for (const std::string async : {"true", "false"}) {
        Fault fault{.what = what, .ranks = place.ranks, .on_rank = place.on_rank};
        fault.options = "--checkpoint.async=" + async;
        if (what == "full") fault.options += " --checkpoint.on_error=continue";
        std::cout << what << " on rank " << place.on_rank << " of " << place.ranks << ", async = " << async
                  << ":" << std::flush;
        for (const auto& [step, runs] : crashes.sweep(fault, stride))
          std::cout << ' ' << runs << " left step " << step << ';';
        std::cout << std::endl;
      }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int stride = argc == 3 ? std::atoi(argv[2]) : 1;
    check((argc == 2 || argc == 3) && argv[1][0] != '-' && stride > 0, "usage: crash_matrix FOLDER [STRIDE]");
    sweep_all(argv[1], stride);
    return 0;
  } catch (const std::exception& error) {
    std::cout << error.what() << std::endl;
    return 1;
  }
}
