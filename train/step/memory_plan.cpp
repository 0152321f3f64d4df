#include "train/step/memory_plan.h"

#include <iomanip>
#include <sstream>

#include "runtime/check.h"

namespace flatshard {
namespace {

struct Purpose {
  const char *name, *what;
};
constexpr Purpose kPurposes[] = {
    {"parameters", "values to compute with: whole, or this rank's shards"},
    {"gathered", "slots for the whole values of sharded units"},
    {"optimizer", "fp32 masters and moments, of this rank's shards"},
    {"gradients", "fp32 sums over micro-steps"},
    {"exchange", "gradients on their way to their owners"},
    {"activations", "kept from forward to backward, or for an evaluation"},
    {"scratch", "of single ops"},
    {"batch", "tokens, targets and losses of this rank's lanes"},
    {"tables", "rotary frequencies"},
    {"staging", "host memory: of a GPU's run, and the copy that a checkpoint is written from"},
    {"transport", "host memory by way of which a GPU's tensors travel to other ranks"},
};

// In host memory, from where the device copies by itself.
Arena host_arena(int purpose, Device device) {
  return Arena(kPurposes[purpose].name, Device::cpu(),
               device.is_cuda() ? Placement::pinned : Placement::plain);
}

// Of what belongs to shards, and so is in host memory where they are offloaded.
Arena shard_arena(int purpose, Device device, bool offload) {
  return offload ? host_arena(purpose, device) : Arena(kPurposes[purpose].name, device);
}

}  // namespace

MemoryPlan::MemoryPlan(Device device, bool offload)
    : parameters(shard_arena(0, device, offload)),
      gathered(kPurposes[1].name, device),
      optimizer(shard_arena(2, device, offload)),
      gradients(shard_arena(3, device, offload)),
      exchange(kPurposes[4].name, device),
      activations(kPurposes[5].name, device),
      scratch(kPurposes[6].name, device),
      batch(kPurposes[7].name, device),
      tables(kPurposes[8].name, device),
      staging(host_arena(9, device)),
      transport(host_arena(10, device)),
      offload_(offload) {}

std::array<Arena*, 11> MemoryPlan::all() {
  return {&parameters, &gathered, &optimizer, &gradients, &exchange, &activations,
          &scratch,    &batch,    &tables,    &staging,   &transport};
}
std::array<const Arena*, 11> MemoryPlan::all() const {
  return {&parameters, &gathered, &optimizer, &gradients, &exchange, &activations,
          &scratch,    &batch,    &tables,    &staging,   &transport};
}

void MemoryPlan::commit(CommitOptions options) {
  for (Arena* arena : all()) arena->commit(options);
}

int64_t MemoryPlan::peak() const {
  int64_t sum = 0;
  for (const Arena* arena : all())
    check(!__builtin_add_overflow(sum, arena->peak(), &sum), "the memory of a run is larger than 2^63 bytes");
  return sum;
}

int64_t MemoryPlan::offloaded() const {
  return offload_ ? parameters.peak() + optimizer.peak() + gradients.peak() : 0;
}

int64_t MemoryPlan::on_host() const {
  return batch.device().is_cuda() ? offloaded() + staging.peak() + transport.peak() : peak();
}

std::string MemoryPlan::table() const {
  std::ostringstream out;
  const auto line = [&](const std::string& name, int64_t bytes, const std::string& what) {
    out << "  " << std::left << std::setw(12) << name << std::right << std::setw(16) << bytes << " B  "
        << std::setw(10) << human_bytes(bytes) << (what.empty() ? "" : "  ") << what << '\n';
  };
  const auto arenas = all();
  for (size_t i = 0; i < arenas.size(); ++i)
    if ((arenas[i] != &staging && arenas[i] != &transport) || arenas[i]->peak() > 0)
      line(arenas[i]->name(), arenas[i]->peak(), kPurposes[i].what);
  if (offload_) {
    line("host", offloaded(), "of these: parameters, optimizer and gradients are offloaded");
    line("device", peak() - offloaded(), "of these: for a step; no shard stays here");
  }
  line("all", peak(), "");
  return std::move(out).str();
}

std::string human_bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  std::ostringstream out;
  out << std::fixed << std::setprecision(unit == 0 ? 0 : value < 10 ? 2 : 1) << value << ' ' << kUnits[unit];
  return std::move(out).str();
}

}  // namespace flatshard
