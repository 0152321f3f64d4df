#include "tests/comm/collectives.h"

#include <ostream>

#include "comm/communicator.h"
#include "runtime/check.h"
#include "runtime/dtype.h"

namespace flatshard::test {
namespace {

// A communicator on trial. Element `at` of what rank r has is a number made of r and `at`, exact in f32.
class Trial {
 public:
  Trial(Communicator& comm, Stream& stream, int64_t part) : comm_(comm), stream_(stream), part_(part) {}

  bool all_gather(bool in_place) {
    std::vector<float> full(whole(), -1), shard(static_cast<size_t>(part_));
    const size_t mine = static_cast<size_t>(comm_.rank() * part_);
    float* values = in_place ? full.data() + mine : shard.data();
    for (int64_t i = 0; i < part_; ++i) values[i] = value(comm_.rank(), i);
    comm_.all_gather(stream_, tensor(full.data(), comm_.size() * part_), tensor(values, part_), "a trial");
    bool held = true;
    for (size_t i = 0; i < full.size(); ++i)
      held = held &&
             full[i] == value(static_cast<int>(i) / static_cast<int>(part_), static_cast<int64_t>(i) % part_);
    return held;
  }

  bool all_to_all() {
    std::vector<float> received(whole(), -1), sent(whole());
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = value(comm_.rank(), static_cast<int64_t>(i));
    comm_.all_to_all(stream_, tensor(received.data(), comm_.size() * part_),
                     tensor(sent.data(), comm_.size() * part_), "a trial");
    bool held = true;
    for (int from = 0; from < comm_.size(); ++from)
      for (int64_t i = 0; i < part_; ++i)
        held =
            held && received[static_cast<size_t>(from * part_ + i)] == value(from, comm_.rank() * part_ + i);
    return held;
  }

  bool reduce_scatter() {
    std::vector<float> shard(static_cast<size_t>(part_), -1), full(whole());
    for (size_t i = 0; i < full.size(); ++i) full[i] = value(comm_.rank(), static_cast<int64_t>(i));
    comm_.reduce_scatter(stream_, tensor(shard.data(), part_), tensor(full.data(), comm_.size() * part_),
                         "a trial");
    bool held = true;
    for (int64_t i = 0; i < part_; ++i) {
      float sum = 0;  // small whole numbers: any order gives the same
      for (int from = 0; from < comm_.size(); ++from) sum += value(from, comm_.rank() * part_ + i);
      held = held && shard[static_cast<size_t>(i)] == sum;
    }
    return held;
  }

  bool broadcast(int root) {
    std::vector<float> values(static_cast<size_t>(part_), -1);
    if (comm_.rank() == root)
      for (int64_t i = 0; i < part_; ++i) values[static_cast<size_t>(i)] = value(root, i);
    comm_.broadcast(stream_, tensor(values.data(), part_), root, "a trial");
    bool held = true;
    for (int64_t i = 0; i < part_; ++i) held = held && values[static_cast<size_t>(i)] == value(root, i);
    return held;
  }

 private:
  static float value(int rank, int64_t at) { return static_cast<float>(1000 * rank + at % 997); }
  size_t whole() const { return static_cast<size_t>(comm_.size() * part_); }
  static Tensor tensor(float* data, int64_t size) { return {data, DType::f32, {size}, Device::cpu()}; }

  Communicator& comm_;
  Stream& stream_;
  int64_t part_;
};

}  // namespace

bool collectives_hold(World& world, std::ostream& out) {
  StreamGroup streams(Device::cpu());
  Stream& stream = streams.add("collectives", StreamRole::comm);
  bool all = true;
  const auto expect = [&](bool held, const char* verb, int64_t part, int groups) {
    if (!held)
      out << verb << " of parts of " << part << " in " << groups << " groups fails on rank " << world.rank()
          << std::endl;
    all = all && held;
  };
  for (const int groups : {1, 2}) {
    if (world.size() % groups != 0) continue;
    // Once groups of neighbours, once of those who are `groups` apart.
    for (const int color : {world.rank() / (world.size() / groups), world.rank() % groups}) {
      const std::unique_ptr<Communicator> comm = make_communicator(world, "trial", color);
      check(comm->size() == world.size() / groups, "a communicator of ", comm->size(), " ranks, must be ",
            world.size() / groups);
      for (const int64_t part : {1, 3, 128, 4096, 100003}) {
        Trial trial(*comm, stream, part);
        expect(trial.all_gather(false), "all_gather", part, groups);
        expect(trial.all_gather(true), "all_gather in place", part, groups);
        expect(trial.all_to_all(), "all_to_all", part, groups);
        expect(trial.reduce_scatter(), "reduce_scatter", part, groups);
        for (const int root : {0, comm->size() - 1}) expect(trial.broadcast(root), "broadcast", part, groups);
      }
    }
  }
  if (all && world.rank() == 0) out << "collectives hold on " << world.size() << " ranks\n";
  return all;
}

}  // namespace flatshard::test
