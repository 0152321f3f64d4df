#include "bench/comm_bench.h"

#include <functional>
#include <iomanip>
#include <iostream>

#include "bench/plain_mpi.h"
#include "comm/communicator.h"
#include "kernels/ordered_sum.h"
#include "runtime/memory.h"
#include "runtime/text.h"

namespace flatshard::bench {
namespace {

constexpr int64_t kSizes[] = {int64_t{64} << 10, int64_t{1} << 20, int64_t{16} << 20, int64_t{64} << 20};
constexpr int kWarmUps = 3, kLeastSamples = 9;
constexpr int64_t kBytesOfSample = int64_t{16} << 20;  // smaller calls are batched

struct Verb {
  std::string name, mpi_call;
  std::function<void()> ours, plain;
};

// Two full tensors and a shard, and the collectives on them.
class Tensors {
 public:
  Tensors(World& world, int64_t bytes)
      : comm_(make_communicator(world, "bench")),
        streams_(Device::cpu()),
        stream_(streams_.add("comm", StreamRole::comm)),
        part_(bytes / size_of(DType::f32) / world.size()),
        memory_(Device::cpu(), 3 * bytes) {
    float* data = static_cast<float*>(memory_.data());
    const int64_t whole = part_ * world.size();
    a_ = tensor_of(data, {whole});
    b_ = tensor_of(data + whole, {whole});
    shard_ = tensor_of(data + 2 * whole, {part_});
    for (const Tensor& t : {a_, b_, shard_}) zero(stream_, t);
  }

  std::vector<Verb> verbs() {
    float *a = a_.as<float>(), *b = b_.as<float>(), *shard = shard_.as<float>();
    const int ranks = comm_->size();
    const auto plain_sum = [=, this] { mpi_reduce_scatter(shard, a, part_); };
    return {{"all_gather", "MPI_Allgather", [this] { comm_->all_gather(stream_, a_, shard_, "bench"); },
             [=, this] { mpi_all_gather(a, shard, part_); }},
            {"all_to_all", "MPI_Alltoall", [this] { comm_->all_to_all(stream_, b_, a_, "bench"); },
             [=, this] { mpi_all_to_all(b, a, part_); }},
            {"reduce_scatter", "MPI_Reduce_scatter_block",
             [this] { comm_->reduce_scatter(stream_, shard_, a_, "bench"); }, plain_sum},
            {"exact sum", "MPI_Reduce_scatter_block",
             [this, ranks] {
               comm_->all_to_all(stream_, b_, a_, "bench");
               ordered_sum(stream_, {.y = shard_, .lanes = b_.view({ranks, part_})});
             },
             plain_sum}};
  }
  int64_t bytes() const { return a_.bytes(); }

 private:
  std::unique_ptr<Communicator> comm_;
  StreamSet streams_;
  Stream& stream_;
  int64_t part_;
  Memory memory_;
  Tensor a_, b_, shard_;
};

// Seconds per call, maximum over the ranks.
double time_of(World& world, const std::function<void()>& call, int64_t calls) {
  world.barrier("bench");
  const double mine = seconds_of([&] {
    for (int64_t i = 0; i < calls; ++i) call();
  });
  const std::vector<double> all = world.all_gather({&mine, 1}, "bench");
  return *std::max_element(all.begin(), all.end()) / static_cast<double>(calls);
}

CommResult measure(World& world, const Verb& verb, int64_t bytes, double limit) {
  const int64_t calls = std::max<int64_t>(1, kBytesOfSample / bytes);
  for (int i = 0; i < kWarmUps; ++i) verb.ours(), verb.plain();
  std::vector<double> ours, plain, ratios;
  double spent = 0;
  for (bool first = true; spent < limit || static_cast<int>(ours.size()) < kLeastSamples; first = !first) {
    if (first) ours.push_back(time_of(world, verb.ours, calls));
    plain.push_back(time_of(world, verb.plain, calls));
    if (!first) ours.push_back(time_of(world, verb.ours, calls));
    ratios.push_back(ours.back() / plain.back());
    spent += (ours.back() + plain.back()) * static_cast<double>(calls);  // same value on all ranks
  }
  return {.verb = verb.name,
          .mpi_call = verb.mpi_call,
          .bytes = bytes,
          .ranks = world.size(),
          .samples = static_cast<int>(ours.size()),
          .ours = spread(ours),
          .plain = spread(plain),
          .ratio = quantile(ratios, 0.5)};
}

void print_header(int ranks) {
  std::cout << ranks << " ranks, f32              bytes        us  p10..p90 us        GB/s  bus GB/s    "
            << "MPI's own us  ours / MPI's\n";
}

void print(const CommResult& r) {
  const auto us = [](double seconds) { return seconds * 1e6; };
  std::cout << std::fixed << std::left << std::setw(16) << r.verb << std::right << std::setw(14)
            << human_bytes(r.bytes) << std::setprecision(0) << std::setw(10) << us(r.ours.median)
            << std::setw(8) << us(r.ours.p10) << ".." << std::left << std::setw(8) << us(r.ours.p90)
            << std::right << std::setprecision(2) << std::setw(8) << r.algorithm_rate() * 1e-9
            << std::setw(10) << r.bus_rate() * 1e-9 << std::setprecision(0) << std::setw(16)
            << us(r.plain.median) << std::setprecision(2) << std::setw(14) << r.ratio << std::endl;
}

}  // namespace

std::vector<CommResult> measure_comm(World& world, double seconds) {
  check(world.size() > 1, "--comm needs at least 2 ranks; start it with mpirun -np 2 bench --comm");
  std::vector<CommResult> results;
  if (world.rank() == 0) print_header(world.size());
  for (const int64_t bytes : kSizes) {
    Tensors tensors(world, bytes);
    for (const Verb& verb : tensors.verbs()) {
      results.push_back(measure(world, verb, tensors.bytes(), seconds));
      if (world.rank() == 0) print(results.back());
    }
  }
  return results;
}

}  // namespace flatshard::bench
