// World in a build without MPI, which always has one rank.

#include <cstdlib>

#include "comm/communicator.h"
#include "comm/launch.h"
#include "comm/self_communicator.h"
#include "comm/watchdog.h"
#include "comm/world.h"
#include "runtime/check.h"

namespace flatshard {

struct World::Host {};

World::World(std::chrono::seconds) {
  const int ranks = launched_ranks().value_or(1);
  check(ranks == 1, "started as one of ", ranks, " ranks, but this build has no MPI: install libopenmpi-dev ",
        "and configure again; or with pip, install 'flatshard[mpi]'");
}

World::~World() = default;

std::vector<double> World::all_gather(std::span<const double> values, const char*) {
  return {values.begin(), values.end()};
}
std::vector<std::string> World::all_gather_texts(const std::string& text, const char*) { return {text}; }

void World::collect(const std::function<std::string()>& give,
                    const std::function<void(int rank, const std::string& text)>& take) {
  for (std::string text = give(); !text.empty(); text = give()) take(0, text);
}

void World::barrier(const char*) {}
bool World::all_arrive(std::chrono::seconds) { return true; }
void World::limit_collectives(std::chrono::seconds) {}
std::chrono::seconds World::collective_limit() const { fail("a world of one has no collectives"); }
void World::enter_step(int64_t) {}

void World::end_all_ranks(const std::string&) { std::_Exit(1); }

std::unique_ptr<Communicator> make_host_communicator(World&, const char* name, int) {
  return std::make_unique<SelfCommunicator>(name);
}

}  // namespace flatshard
