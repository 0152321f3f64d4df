#include "tests/comm/collectives.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ostream>
#include <thread>
#include <vector>

#include "build_config.h"
#include "comm/communicator.h"
#include "comm/gpu_place.h"
#include "runtime/arena.h"
#include "runtime/check.h"
#include "runtime/graph.h"
#include "runtime/memory.h"

namespace flatshard::test {
namespace {

// One test of a communicator. Element `at` of rank r's data is a function of r and `at`, exact in f32.
class Trial {
 public:
  Trial(Communicator& comm, Stream& stream, int64_t part) : comm_(comm), stream_(stream), part_(part) {}

  bool all_gather(bool in_place) {
    const Tensor full = upload(std::vector<float>(whole(), -1));
    const Tensor shard = in_place ? part_of(full, comm_.rank(), comm_.size()) : upload(mine(part_));
    if (in_place) copy(stream_, shard, upload(mine(part_)));
    comm_.all_gather(stream_, full, shard, "a trial");
    return holds(full, [&](int64_t i) { return value(static_cast<int>(i / part_), i % part_); });
  }

  bool all_to_all() {
    const Tensor received = upload(std::vector<float>(whole(), -1));
    comm_.all_to_all(stream_, received, upload(mine(comm_.size() * part_)), "a trial");
    return holds(received, [&](int64_t i) {
      return value(static_cast<int>(i / part_), comm_.rank() * part_ + i % part_);
    });
  }

  bool reduce_scatter() {
    const Tensor shard = upload(std::vector<float>(static_cast<size_t>(part_), -1));
    comm_.reduce_scatter(stream_, shard, upload(mine(comm_.size() * part_)), "a trial");
    return holds(shard, [&](int64_t i) {
      float sum = 0;  // small integers: the sum is exact in any order
      for (int from = 0; from < comm_.size(); ++from) sum += value(from, comm_.rank() * part_ + i);
      return sum;
    });
  }

  bool broadcast(int root) {
    const Tensor t =
        upload(comm_.rank() == root ? mine(part_) : std::vector<float>(static_cast<size_t>(part_), -1));
    comm_.broadcast(stream_, t, root, "a trial");
    return holds(t, [&](int64_t i) { return value(root, i); });
  }

  // Every rank sends two messages to its successor, in order; the even ones send first.
  bool messages() {
    const int next = (comm_.rank() + 1) % comm_.size(),
              last = (comm_.rank() + comm_.size() - 1) % comm_.size();
    const Tensor received = upload(std::vector<float>(static_cast<size_t>(2 * part_), -1)),
                 sent = upload(mine(2 * part_));
    const auto send = [&] {
      for (int i = 0; i < 2; ++i) comm_.send(stream_, part_of(sent, i, 2), next, "a trial");
    };
    const auto receive = [&] {
      for (int i = 0; i < 2; ++i) comm_.receive(stream_, part_of(received, i, 2), last, "a trial");
    };
    const bool first = comm_.rank() % 2 == 0;
    first ? send() : receive();
    first ? receive() : send();
    return holds(received, [&](int64_t i) { return value(last, i); });
  }

  // Rank r sends each of its peers r + 1 elements, or as many as a part has.
  bool exchange() {
    bool held = true;
    const auto sent_by = [&](int rank) { return std::min<int64_t>(part_, rank + 1); };
    for (int step = 1; step < comm_.size(); ++step) {
      const int peer = comm_.rank() ^ step;
      if (peer >= comm_.size()) continue;
      const Tensor received = upload(std::vector<float>(static_cast<size_t>(sent_by(peer)), -1));
      comm_.exchange(stream_, received, upload(mine(sent_by(comm_.rank()))), peer, "a trial");
      held = holds(received, [&](int64_t i) { return value(peer, i); }) && held;
    }
    return held;
  }

  // Exchanges in a graph, which is launched twice, with other values each time. An uncaptured call precedes
  // each launch.
  bool graph(StreamSet& streams) {
    const auto nothing = [](int64_t n) { return std::vector<float>(static_cast<size_t>(n), -1); };
    const int64_t n = comm_.size() * part_;
    const Tensor source = upload(nothing(n)), shard = upload(nothing(part_)), sent = upload(nothing(n)),
                 full = upload(nothing(n)), received = upload(nothing(n));
    Graph exchange(streams, [&] {
      copy(stream_, sent, source);
      comm_.all_gather(stream_, full, shard, "a trial");
      comm_.all_to_all(stream_, received, sent, "a trial");
    });
    bool all = holds(full, [](int64_t) { return -1.0f; });
    for (const float factor : {1.0f, 3.0f}) {
      std::vector<float> values = mine(n);
      for (float& v : values) v *= factor;
      copy(stream_, source, {values.data(), DType::f32, {n}, Device::cpu()});
      copy(stream_, shard, part_of(source, 0, comm_.size()));
      comm_.broadcast(stream_, shard, 0, "a trial");
      launch(exchange);
      all = holds(full, [&](int64_t i) { return factor * value(0, i % part_); }) && all;
      all = holds(received,
                  [&](int64_t i) {
                    return factor * value(static_cast<int>(i / part_), comm_.rank() * part_ + i % part_);
                  }) &&
            all;
    }
    return all;
  }
  // Rank 0 launches a graph that the others only capture, and waits for its watchdog.
  void unmatched_graph(StreamSet& streams) {
    const Tensor full = upload(mine(comm_.size() * part_)), shard = upload(mine(part_));
    comm_.all_gather(stream_, full, shard, "a trial");  // connects
    stream_.sync();
    Graph exchange(streams, [&] { comm_.all_gather(stream_, full, shard, "a trial"); });
    if (comm_.rank() == 0) launch(exchange);
    std::this_thread::sleep_for(std::chrono::seconds(30));
  }

 private:
  void launch(Graph& exchange) {
    comm_.graph_launches();
    exchange.launch();
    comm_.graph_launched(stream_);
  }
  static float value(int rank, int64_t at) { return static_cast<float>((rank + 1) * 1000 + at % 997); }
  size_t whole() const { return static_cast<size_t>(comm_.size() * part_); }

  std::vector<float> mine(int64_t size) const {
    std::vector<float> values;
    for (int64_t i = 0; i < size; ++i) values.push_back(value(comm_.rank(), i));
    return values;
  }
  // A copy on the stream's device.
  Tensor upload(std::vector<float> values) {
    const int64_t n = std::ssize(values);
    memory_.emplace_back(stream_.device(), n * size_of(DType::f32));
    const Tensor t{memory_.back().data(), DType::f32, {n}, stream_.device()};
    copy(stream_, t, {values.data(), DType::f32, {n}, Device::cpu()});
    stream_.sync();
    return t;
  }
  template <class Expected>
  bool holds(const Tensor& t, Expected&& expected) {
    std::vector<float> values(static_cast<size_t>(t.size()));
    copy(stream_, {values.data(), DType::f32, {t.size()}, Device::cpu()}, t);
    stream_.sync();
    for (int64_t i = 0; i < t.size(); ++i)
      if (values[static_cast<size_t>(i)] != expected(i)) return false;
    return true;
  }

  Communicator& comm_;
  Stream& stream_;
  int64_t part_;
  std::vector<Memory> memory_;
};

constexpr int64_t kParts[] = {1, 3, 128, 4096, 100003};  // ascending

// Reserves the workspace of the largest call.
void plan_workspace(Communicator& comm, Device device, Arena& workspace) {
  StreamSet planning(device, {.planning = true});
  const Tensor whole{nullptr, DType::f32, {comm.size() * *std::rbegin(kParts)}, device};
  comm.all_to_all(planning.add("plan"), whole, whole, "a plan");
  comm.reserve_workspace(workspace);
  workspace.commit();
  comm.reserve_workspace(workspace);
}

// Tests one transport with one group, and with two groups of either consecutive or alternating ranks.
bool hold_over(World& world, Transport transport, Device device, std::ostream& out) {
  StreamSet streams(device);
  Stream& stream = streams.add("collectives", StreamRole::comm);
  bool all = true;
  const auto expect = [&](bool held, const char* verb, int64_t part, int groups) {
    if (!held)
      out << verb << " of parts of " << part << " in " << groups << " groups fails on rank " << world.rank()
          << ", transport " << static_cast<int>(transport) << std::endl;
    all = all && held;
  };
  for (const int groups : {1, 2}) {
    if (world.size() % groups != 0) continue;
    // Groups of consecutive ranks, then groups of ranks that are `groups` apart.
    for (const int color : {world.rank() / (world.size() / groups), world.rank() % groups}) {
      const std::unique_ptr<Communicator> comm = make_communicator(world, "trial", color, transport, device);
      Arena workspace("workspace", Device::cpu(), Placement::pinned);
      plan_workspace(*comm, device, workspace);
      check(comm->size() == world.size() / groups, "a communicator of ", comm->size(), " ranks, must be ",
            world.size() / groups);
      for (const int64_t part : kParts) {
        const auto trial = [&] { return Trial(*comm, stream, part); };
        expect(trial().all_gather(false), "all_gather", part, groups);
        expect(trial().all_gather(true), "all_gather in place", part, groups);
        expect(trial().all_to_all(), "all_to_all", part, groups);
        expect(trial().reduce_scatter(), "reduce_scatter", part, groups);
        for (const int root : {0, comm->size() - 1})
          expect(trial().broadcast(root), "broadcast", part, groups);
        if (comm->size() % 2 == 0) expect(trial().messages(), "send and receive", part, groups);
        expect(trial().exchange(), "exchange", part, groups);
        if (transport == Transport::nccl) expect(trial().graph(streams), "a graph", part, groups);
      }
    }
  }
  return all;
}

}  // namespace

bool collectives_hold(World& world, std::ostream& out) {
  bool all = hold_over(world, Transport::host, Device::cpu(), out);
  all = hold_over(world, Transport::staged, Device::cpu(), out) && all;
  const GpuPlace place = place_on_gpu(world);
  if (cuda_device_count() > 0) {
    const Device gpu = Device::cuda(place.index);
    all = hold_over(world, Transport::staged, gpu, out) && all;
    const bool apart = place.shared.empty() || std::getenv("NCCL_HOSTID");
    if (kNcclBuilt && apart) all = hold_over(world, Transport::nccl, gpu, out) && all;
  }
  if (all && world.rank() == 0) out << "collectives hold on " << world.size() << " ranks\n";
  return all;
}

void launch_unmatched_graph(World& world) {
  const Device gpu = Device::cuda(place_on_gpu(world).index);
  const std::unique_ptr<Communicator> comm = make_communicator(world, "trial", 0, Transport::nccl, gpu);
  world.limit_collectives(std::chrono::seconds(1));
  StreamSet streams(gpu);
  Trial(*comm, streams.add("collectives", StreamRole::comm), kParts[0]).unmatched_graph(streams);
}

}  // namespace flatshard::test
