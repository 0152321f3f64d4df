#include "ptx_vm/grid.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <string>

#include "ptx_vm/decode.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/register_allocation.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr uint32_t kDefaultResidentWarps = 64;
constexpr uint64_t kTurn = 1 << 16;              // of a warp that does not wait
constexpr uint64_t kShortTurn = 128;             // round robin
constexpr uint64_t kVainRounds = 64;             // in which all warps only poll
constexpr uint64_t kHangs = uint64_t{16} << 20;  // instructions without a store, a barrier or an exit

void fill_literals(const Kernel& kernel, unsigned char* registers) {
  for (const Literal& literal : kernel.literals)
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      std::memcpy(registers + literal.slot + lane * literal.bytes, &literal.bits, literal.bytes);
  for (const auto& [slot, mask] : kernel.predicate_literals)
    std::memcpy(registers + slot, &mask, sizeof(mask));
}

unsigned char* registers_of(std::vector<unsigned char>& files, const Kernel& kernel, size_t warp) {
  const auto begin = reinterpret_cast<uint64_t>(files.data());
  return reinterpret_cast<unsigned char*>(aligned(begin, kSlotAlignment)) + warp * kernel.register_bytes;
}

// Register files are reused by later launches: new memory for each would cost more than a small kernel, and
// so would writing its literals, which are kept if the kernel is the same.
struct RegisterFiles {
  std::vector<unsigned char> bytes{};
  uint64_t kernel = 0;  // its number
  size_t warps = 0;
};
std::vector<RegisterFiles>& spare_registers() {
  static std::vector<RegisterFiles> all;
  return all;
}

// The files of all warps of a block, each aligned as vectors need it.
std::vector<unsigned char> take_registers(const Kernel& kernel, size_t warps) {
  std::vector<RegisterFiles>& spare = spare_registers();
  auto found = std::find_if(spare.begin(), spare.end(), [&](const RegisterFiles& files) {
    return files.kernel == kernel.number && files.warps == warps;
  });
  const bool has_literals = found != spare.end();
  if (!has_literals && !spare.empty()) found = std::prev(spare.end());
  RegisterFiles files;
  if (found != spare.end()) {
    files = std::move(*found);
    spare.erase(found);
  }
  const uint64_t bytes = uint64_t{warps} * kernel.register_bytes + kSlotAlignment;
  if (files.bytes.size() < bytes) files.bytes.resize(bytes);
  if (!has_literals)
    for (size_t w = 0; w < warps; ++w) fill_literals(kernel, registers_of(files.bytes, kernel, w));
  return std::move(files.bytes);
}

Dim place_in(const Dim& of, uint64_t index) {
  return {static_cast<uint32_t>(index % of.x), static_cast<uint32_t>(index / of.x % of.y),
          static_cast<uint32_t>(index / of.x / of.y)};
}

// Assigns a block an index in the grid. Its registers keep the literals of the previous block.
void start(Block& block, Launch& launch, const Dim& id) {
  const Kernel& kernel = *launch.kernel;
  const auto threads = static_cast<uint32_t>(launch.block.count());
  const uint32_t warps = (threads + kLanes - 1) / kLanes;
  const bool is_new = block.warps.empty();
  if (is_new) {
    block.launch = &launch;
    block.registers = take_registers(kernel, warps);
    block.warps.resize(warps);
    for (uint32_t w = 0; w < warps; ++w) block.warps[w].registers = registers_of(block.registers, kernel, w);
  }
  block.id = id;
  const uint64_t index = id.x + uint64_t{launch.grid.x} * (id.y + uint64_t{launch.grid.y} * id.z);
  block.shared.assign(kernel.static_shared_bytes + launch.dynamic_shared_bytes, 0xff);
  block.shared_state.assign(block.shared.size(), kUnwritten);
  for (const auto& [begin, end] : kernel.shared_gaps)
    std::fill(block.shared_state.begin() + begin, block.shared_state.begin() + end, kGap);
  for (Barrier& barrier : block.barriers)
    if (barrier.expected) barrier.begin();
  block.mbarriers.clear();
  block.loads.clear();
  block.stores.clear();
  block.visits.clear();
  block.started = block.settled = Epochs::next_mark();
  block.products.clear();
  block.warpgroups.clear();
  if (kernel.uses_warpgroups) {
    block.products.resize(warps);
    block.warpgroups.resize((warps + 3) / 4);
    block.register_pool.start(threads, warps, kernel.blocks_per_processor);
  }
  block.live_warps = static_cast<int>(warps);
  block.copies_in_flight = 0;
  for (uint32_t w = 0; w < warps; ++w) {
    Warp& warp = block.warps[w];
    warp.block = &block;
    warp.index = static_cast<int>(w);
    const uint32_t lanes = std::min(threads - w * kLanes, uint32_t{kLanes});
    warp.live = lanes == kLanes ? kAllLanes : (1u << lanes) - 1;
    warp.state = Warp::State::ready;
    warp.groups = {{0, warp.live}};
    warp.serial = launch.first_serial + static_cast<uint32_t>(index * warps + w);
    warp.known.assign(warps, 0);
    warp.known_elsewhere.clear();
    warp.observed.clear();
    warp.fenced.clear();
    warp.copies = {};
    warp.proxy_fences.clear();
    warp.known[w] = 1;
    warp.epoch = 0;
    warp.cluster_arrivals = warp.cluster_waits = 0;
    warp.local.assign(size_t{kernel.local_bytes} * kLanes, 0xff);
    warp.local_state.assign(warp.local.size(), kUnwritten);
    for (const auto& [slot, special] : kernel.specials)
      if (is_new || varies_by_block(special))
        for (uint32_t lane = 0; lane < kLanes; ++lane)
          warp.lanes<uint32_t>(slot)[lane] = value_of(special, warp, lane);
  }
}

// Assigns the next index to a cluster: to all of its blocks.
void start(Cluster& cluster, Launch& launch, uint64_t index) {
  const Dim &size = launch.cluster, &grid = launch.grid;
  const Dim id = place_in({grid.x / size.x, grid.y / size.y, grid.z / size.z}, index);
  for (Block* block : cluster.blocks)
    if (!block->warps.empty()) launch.async.finish_of(*block);
  cluster = {.blocks = std::move(cluster.blocks)};
  for (uint32_t rank = 0; rank < cluster.blocks.size(); ++rank) {
    const Dim at = place_in(size, rank);
    cluster.blocks[rank]->cluster = &cluster;
    cluster.blocks[rank]->rank = rank;
    start(*cluster.blocks[rank], launch, {id.x * size.x + at.x, id.y * size.y + at.y, id.z * size.z + at.z});
  }
}

[[noreturn]] void report_deadlock(const std::vector<Block>& blocks, const std::string& why) {
  const Warp* first = nullptr;
  std::string all;
  int named = 0;
  for (const Block& block : blocks)
    for (const Warp& warp : block.warps) {
      if (warp.state == Warp::State::ended) continue;
      // A warp that polls or lacks registers is closer to the cause than the warps that wait for it at a
      // barrier.
      const bool lacks_registers = warp.state == Warp::State::at_registers;
      if (!first || (lacks_registers && first->state != warp.state) ||
          (first->state != Warp::State::at_registers && describe_poll(*first).empty() &&
           !describe_poll(warp).empty()))
        first = &warp;
      if (named++ >= 64) continue;
      all +=
          str("\n    block (", block.id.x, ',', block.id.y, ',', block.id.z, ") warp ", warp.index, " is at ",
              block.kernel().where(warp.current), ": ", block.kernel().instructions[warp.current]->opcode,
              describe_poll(warp), block.register_pool.describe(warp));
    }
  if (named > 64) all += str("\n    and ", named - 64, " more");
  const bool lacks_registers = first->state == Warp::State::at_registers;
  report(lacks_registers ? FindingKind::register_pool : FindingKind::deadlock, *first,
         std::countr_zero(first->live), why + all);
}

class Scheduler {
 public:
  explicit Scheduler(Launch& launch) : launch_(launch), random_(options().seed) {
    const uint64_t count = launch.grid.count();
    const uint64_t warps = (launch.block.count() + kLanes - 1) / kLanes;
    const uint64_t resident = options().resident_blocks
                                  ? options().resident_blocks
                                  : std::max<uint64_t>(1, kDefaultResidentWarps / warps);
    const uint64_t size = launch.cluster.count();
    clusters_.resize(launch.is_cooperative ? count / size
                                           : std::min(std::max<uint64_t>(1, resident / size), count / size));
    blocks_ = std::vector<Block>(clusters_.size() * size);
    for (size_t b = 0; b < blocks_.size(); ++b) clusters_[b / size].blocks.push_back(&blocks_[b]);
    for (Cluster& cluster : clusters_) start(cluster, launch_, next_++);
  }

  ~Scheduler() {
    for (Block& block : blocks_)
      spare_registers().push_back({std::move(block.registers), launch_.kernel->number, block.warps.size()});
  }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void run_all() {
    uint64_t quiet = 0, progress = 0;
    refresh();
    while (!ready_.empty()) {
      const size_t chosen = choose();
      Warp& warp = *ready_[chosen].warp;
      const uint64_t before = warp.executed;
      run(warp, turn(), passed_over_ > 2 * ready_.size());
      counters().warp_instructions += warp.executed - before;
      launch_.async.maybe_run();
      if (passed_over_ > 2 * ready_.size()) launch_.async.run_one();
      const bool is_quiet = progress == launch_.progress;
      polls_ = is_quiet && warp.polls ? polls_ + 1 : 0;
      quiet = is_quiet ? quiet + warp.executed - before : 0;
      passed_over_ = is_quiet ? passed_over_ + 1 : 0;
      progress = launch_.progress;
      update(chosen);
      if (polls_ > kVainRounds * (ready_.size() + 1))
        report_deadlock(blocks_, "every runnable warp polls without success:");
      if (quiet > kHangs)
        report_deadlock(blocks_,
                        str("warps have run ", quiet, " instructions without a store, a barrier or an exit"));
    }
  }

 private:
  struct Ready {
    uint32_t serial;
    Warp* warp;
    bool operator<(const Ready& other) const { return serial < other.serial; }
  };

  // After a turn of one warp, which may now wait or have ended; others may have been woken.
  void update(size_t chosen) {
    const Warp& warp = *ready_[chosen].warp;
    if (warp.state != Warp::State::ready) ready_.erase(ready_.begin() + static_cast<ptrdiff_t>(chosen));
    for (Warp* woken : launch_.woken) {
      if (woken->state != Warp::State::ready) continue;
      const Ready entry{woken->serial, woken};
      const auto at = std::lower_bound(ready_.begin(), ready_.end(), entry);
      if (at == ready_.end() || at->warp != woken) ready_.insert(at, entry);
    }
    launch_.woken.clear();
    if (ready_.empty() || warp.block->live_warps == 0) refresh();
  }

  // Replaces blocks that have ended by the next of the grid; then lists the runnable warps in the order of
  // the grid.
  void refresh() {
    ready_.clear();
    launch_.woken.clear();
    bool anybody = false;
    for (Cluster& cluster : clusters_) {
      const bool has_ended = std::all_of(cluster.blocks.begin(), cluster.blocks.end(),
                                         [](const Block* block) { return block->live_warps == 0; });
      if (has_ended && next_ * cluster.blocks.size() < launch_.grid.count()) start(cluster, launch_, next_++);
    }
    for (Block& block : blocks_) {
      for (Warp& warp : block.warps) {
        anybody |= warp.state != Warp::State::ended;
        if (warp.state == Warp::State::ready) ready_.push_back({warp.serial, &warp});
      }
    }
    std::sort(ready_.begin(), ready_.end());
    if (ready_.empty() && launch_.async.run_one()) return refresh();
    if (ready_.empty() && anybody) report_deadlock(blocks_, "no warp can run; each waits:");
  }

  size_t choose() {
    switch (options().schedule) {
      case Schedule::in_order:
        return passed_over_ % ready_.size();
      case Schedule::reverse:
        return ready_.size() - 1 - passed_over_ % ready_.size();
      case Schedule::round_robin:
        return ++turn_ % ready_.size();
      case Schedule::random:
        return random_() % ready_.size();
    }
    return 0;
  }

  uint64_t turn() {
    switch (options().schedule) {
      case Schedule::round_robin:
        return kShortTurn;
      case Schedule::random:
        return 1 + random_() % 64;
      default:
        return kTurn;
    }
  }

  Launch& launch_;
  std::mt19937_64 random_;
  std::vector<Block> blocks_;
  std::vector<Cluster> clusters_;
  std::vector<Ready> ready_;
  uint64_t next_ = 0;  // cluster of the grid
  uint64_t turn_ = 0;
  uint64_t passed_over_ = 0;  // turns in a row that changed nothing: warps that poll must let others run
  uint64_t polls_ = 0;        // turns in a row that ended with a poll in vain and changed nothing
};

}  // namespace

void execute(Launch& launch) {
  ++counters().launches;
  launch.first_serial = take_serials(static_cast<uint32_t>(launch.warps()));
  launch.async.seed(options().seed);
  if (Counts* counts = options().counts) {
    launch.counts = counts;
    counts->begin_launch();
    launch.kernel_counts = &counts->of(*launch.kernel);
    ++launch.kernel_counts->launches;
    launch.kernel_counts->blocks += launch.grid.count();
    launch.kernel_counts->shared_bytes = std::max(
        launch.kernel_counts->shared_bytes, launch.kernel->static_shared_bytes + launch.dynamic_shared_bytes);
  }
  Scheduler(launch).run_all();
}

}  // namespace flatshard::ptx_vm
