#include "ptx_vm/register_allocation.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <string_view>
#include <unordered_map>

#include "ptx_vm/program.h"

namespace flatshard::ptx_vm {
namespace {

using Bits = std::vector<uint64_t>;

bool has(const Bits& bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }
void add(Bits& bits, uint32_t i) { bits[i / 64] |= uint64_t{1} << (i % 64); }

// Opcodes whose only result is their first operand. For all others every register counts as read, which is
// always safe.
bool writes_first_operand(std::string_view base) {
  static constexpr std::array kNames{
      "abs",      "activemask", "add",  "and",   "atom", "bfe",     "bfi", "bfind", "brev",  "clz",
      "copysign", "cos",        "cvt",  "cvta",  "div",  "ex2",     "fma", "fns",   "ld",    "ldu",
      "lg2",      "lop3",       "mad",  "match", "max",  "min",     "mov", "mul",   "mul24", "neg",
      "not",      "or",         "popc", "prmt",  "rcp",  "redux",   "rem", "rsqrt", "sad",   "selp",
      "set",      "setp",       "shf",  "shfl",  "shl",  "shr",     "sin", "slct",  "sqrt",  "sub",
      "tanh",     "testp",      "vote", "xor",   "mma",  "ldmatrix"};
  return std::find(kNames.begin(), kNames.end(), base) != kNames.end();
}

// One instruction: the registers it reads, and those it overwrites whole.
struct Step {
  std::vector<uint32_t> reads, writes;
  std::vector<uint32_t> next{};  // instructions that may follow
};

class Liveness {
 public:
  explicit Liveness(const Function& function);
  RegisterSlots allocate(uint32_t first);

 private:
  struct Register {
    uint32_t bytes;  // of its slot
    bool is_pinned = false;
    uint32_t begin = kNowhere, end = 0;  // live from .. to; a result of instruction i begins at 2 i + 1
    void cover(uint32_t at) {
      begin = std::min(begin, at);
      end = std::max(end, at);
    }
  };
  struct Names {
    std::vector<std::pair<const Registers*, uint32_t>> declared;  // and the number of the first
    std::unordered_map<std::string_view, uint32_t> labels;
  };
  struct Block {
    uint32_t begin, end;  // instructions
    Bits reads, writes, live_in, live_out;
  };

  void read_body();
  void read_instruction(const Instruction& i);
  void touch(const Operand& o, std::vector<uint32_t>& into) const;
  void touch(std::string_view name, std::vector<uint32_t>& into) const;
  void find_next();
  void cut_into_blocks();
  void flow_back();
  void cover_all();

  const Function& function_;
  std::vector<Register> registers_;
  std::vector<Names> scopes_;
  std::vector<uint32_t> open_;
  std::vector<Step> steps_;
  std::vector<const Instruction*> instructions_;
  std::vector<std::vector<uint32_t>> open_at_;  // scopes, for labels
  std::unordered_map<std::string_view, const BranchTargets*> tables_;
  std::vector<Block> blocks_;
};

Liveness::Liveness(const Function& function) : function_(function) {
  read_body();
  find_next();
  cut_into_blocks();
  flow_back();
  cover_all();
}

void Liveness::read_body() {
  scopes_.emplace_back();
  open_.push_back(0);
  for (const Statement& s : function_.body) {
    if (const auto* r = std::get_if<Registers>(&s)) {
      scopes_[open_.back()].declared.emplace_back(r, static_cast<uint32_t>(registers_.size()));
      const uint32_t bytes =
          r->type == "pred" ? 4 : kLanes * std::max(2u, static_cast<uint32_t>(bytes_of_type(r->type)));
      registers_.resize(registers_.size() + static_cast<size_t>(std::max(r->count, 1)), Register{bytes});
    }
    if (const auto* l = std::get_if<Label>(&s))
      scopes_[open_.back()].labels[l->name] = static_cast<uint32_t>(steps_.size());
    if (const auto* t = std::get_if<BranchTargets>(&s)) tables_[t->name] = t;
    if (const auto* i = std::get_if<Instruction>(&s)) read_instruction(*i);
    if (const auto* scope = std::get_if<Scope>(&s)) {
      if (*scope == Scope::close) {
        open_.pop_back();
        continue;
      }
      open_.push_back(static_cast<uint32_t>(scopes_.size()));
      scopes_.emplace_back();
    }
  }
}

void Liveness::touch(std::string_view name, std::vector<uint32_t>& into) const {
  for (auto scope = open_.rbegin(); scope != open_.rend(); ++scope)
    for (const auto& [declared, first] : scopes_[*scope].declared)
      if (const int place = place_in(*declared, name); place >= 0)
        return into.push_back(first + static_cast<uint32_t>(place));
}

void Liveness::touch(const Operand& o, std::vector<uint32_t>& into) const {
  if (!o.name.empty()) touch(o.name, into);
  if (!o.second.empty()) touch(o.second, into);
  for (const Operand& part : o.parts) touch(part, into);
}

void Liveness::read_instruction(const Instruction& i) {
  Step step;
  const std::string_view base = i.opcode.substr(0, i.opcode.find('.'));
  if (!i.guard.empty()) touch(i.guard, step.reads);
  for (size_t o = 0; o < i.operands.size(); ++o) {
    const bool is_result =
        o == 0 && writes_first_operand(base) && i.operands[0].kind != Operand::Kind::address;
    touch(i.operands[o], is_result ? step.writes : step.reads);
  }
  // If some lanes keep their values, the register counts as read.
  if (!i.guard.empty()) step.reads.insert(step.reads.end(), step.writes.begin(), step.writes.end());
  // Tensor cores still read and write registers after the instruction.
  if (base == "wgmma")
    for (const uint32_t r : step.reads) registers_[r].is_pinned = true;
  steps_.push_back(std::move(step));
  instructions_.push_back(&i);
  open_at_.push_back(open_);
}

void Liveness::find_next() {
  for (uint32_t i = 0; i < steps_.size(); ++i) {
    const Instruction& instruction = *instructions_[i];
    const std::string_view opcode = instruction.opcode, base = opcode.substr(0, opcode.find('.'));
    const auto go_to = [&](std::string_view label) {
      for (auto scope = open_at_[i].rbegin(); scope != open_at_[i].rend(); ++scope)
        if (const auto found = scopes_[*scope].labels.find(label); found != scopes_[*scope].labels.end())
          return steps_[i].next.push_back(found->second);
    };
    if (base == "bra") go_to(instruction.operands.at(0).name);
    if (base == "brx")
      if (const auto table = tables_.find(instruction.operands.at(1).name); table != tables_.end())
        for (const std::string_view label : table->second->labels) go_to(label);
    const bool ends = base == "bra" || base == "brx" || base == "exit" || base == "ret";
    if (!ends || !instruction.guard.empty()) steps_[i].next.push_back(i + 1);
  }
}

void Liveness::cut_into_blocks() {
  const auto count = static_cast<uint32_t>(steps_.size());
  std::vector<bool> begins(count + 1, false);
  begins[0] = begins[count] = true;
  for (uint32_t i = 0; i < count; ++i) {
    if (steps_[i].next.size() == 1 && steps_[i].next[0] == i + 1) continue;
    begins[i + 1] = true;
    for (const uint32_t next : steps_[i].next) begins[next] = true;
  }
  const Bits none((registers_.size() + 63) / 64);
  for (uint32_t i = 0; i < count; ++i) {
    if (begins[i]) blocks_.push_back({i, i, none, none, none, none});
    Block& block = blocks_.back();
    block.end = i + 1;
    for (const uint32_t r : steps_[i].reads)
      if (!has(block.writes, r)) add(block.reads, r);
    for (const uint32_t r : steps_[i].writes) add(block.writes, r);
  }
}

// Live at the start of a block: registers that it reads, and those that later blocks read and it does not
// write.
void Liveness::flow_back() {
  std::map<uint32_t, const Block*> by_begin;
  for (const Block& block : blocks_) by_begin[block.begin] = &block;
  for (bool changed = true; changed;) {
    changed = false;
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
      for (const uint32_t next : steps_[block->end - 1].next)
        if (const auto found = by_begin.find(next); found != by_begin.end())
          for (size_t w = 0; w < block->live_out.size(); ++w) block->live_out[w] |= found->second->live_in[w];
      for (size_t w = 0; w < block->live_in.size(); ++w) {
        const uint64_t live = block->reads[w] | (block->live_out[w] & ~block->writes[w]);
        changed |= live != block->live_in[w];
        block->live_in[w] = live;
      }
    }
  }
}

void Liveness::cover_all() {
  for (const Block& block : blocks_)
    for (uint32_t r = 0; r < registers_.size(); ++r) {
      if (has(block.live_in, r)) registers_[r].cover(2 * block.begin);
      if (has(block.live_out, r)) registers_[r].cover(2 * block.end);
    }
  for (uint32_t i = 0; i < steps_.size(); ++i) {
    for (const uint32_t r : steps_[i].reads) registers_[r].cover(2 * i);
    // Of several results the first may be written before the last operand is read.
    for (const uint32_t r : steps_[i].writes) registers_[r].cover(2 * i + (steps_[i].writes.size() == 1));
  }
  for (Register& r : registers_)
    if (r.is_pinned) r.cover(0), r.cover(2 * static_cast<uint32_t>(steps_.size()));
}

RegisterSlots Liveness::allocate(uint32_t first) {
  RegisterSlots result{std::vector<uint32_t>(registers_.size()), first};
  std::vector<uint32_t> order;
  for (uint32_t r = 0; r < registers_.size(); ++r)
    if (registers_[r].begin != kNowhere) order.push_back(r);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return registers_[a].begin < registers_[b].begin; });
  std::multimap<uint32_t, uint32_t> ending;                  // of registers that hold a slot, by their end
  std::unordered_map<uint32_t, std::vector<uint32_t>> free;  // slots, by size
  for (const uint32_t r : order) {
    while (!ending.empty() && ending.begin()->first < registers_[r].begin) {
      const uint32_t done = ending.begin()->second;
      free[registers_[done].bytes].push_back(result.slots[done]);
      ending.erase(ending.begin());
    }
    std::vector<uint32_t>& spare = free[registers_[r].bytes];
    if (spare.empty()) {
      // Predicates share a line.
      const uint32_t each = registers_[r].bytes;
      result.bytes = (result.bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
      for (uint32_t at = 0; at < std::max(each, kSlotAlignment); at += each)
        spare.push_back(result.bytes + at);
      result.bytes += std::max(each, kSlotAlignment);
    }
    result.slots[r] = spare.back();
    spare.pop_back();
    ending.emplace(registers_[r].end, r);
  }
  return result;
}

}  // namespace

int place_in(const Registers& declared, std::string_view name) {
  if (declared.count < 0) return name == declared.name ? 0 : -1;
  if (!name.starts_with(declared.name) || name.size() == declared.name.size()) return -1;
  int number = -1;
  const char* end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + declared.name.size(), end, number);
  return error == std::errc{} && stopped == end && number < declared.count ? number : -1;
}

RegisterSlots allocate_registers(const Function& function, uint32_t first) {
  return Liveness(function).allocate(first);
}

}  // namespace flatshard::ptx_vm
