#include "ptx_vm/decode.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>

#include "ptx_vm/lanes.h"
#include "ptx_vm/race.h"
#include "ptx_vm/register_allocation.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

const OpTable& op_table() {
  static const OpTable table = [] {
    OpTable all;
    for (const auto add :
         {add_arithmetic_ops, add_bit_ops, add_compare_ops, add_convert_ops, add_move_ops, add_memory_ops,
          add_atomic_ops, add_call_ops, add_warp_ops, add_tensor_ops, add_async_copy_ops, add_control_ops,
          add_fence_ops, add_mbarrier_ops, add_bulk_ops, add_cluster_ops, add_wgmma_ops})
      add(all);
    return all;
  }();
  return table;
}

template <class Address>
void offset_address(Warp& warp, const Op& op) {
  const Address* base = warp.lanes<Address>(op.slot[1]);
  write_lanes<uint64_t>(warp, op.slot[0],
                        [&](int l) { return base[l] + static_cast<uint64_t>(op.immediate); });
}

}  // namespace

Decoder::Decoder(const Module& module, const Function& function, const Symbols& symbols, Kernel& kernel)
    : module_(module), function_(function), symbols_(symbols), kernel_(kernel) {}

void Decoder::wrong(const std::string& what) const {
  const int location = instruction_->location;
  fail(str(demangled(function_.name), ": ", instruction_->opcode, ": ", what, " (PTX line ",
           instruction_->line, location < 0 ? "" : ", " + describe_location(module_, location, 0), ")"));
}

void Decoder::decode_all() {
  lay_out_variables();
  RegisterSlots allocation = allocate_registers(function_, kernel_.register_bytes);
  slots_ = std::move(allocation.slots);
  kernel_.register_bytes = allocation.bytes;
  scopes_.push_back({0, {}, {}});
  open_.push_back(0);
  for (const Statement& s : function_.body) {
    if (const auto* i = std::get_if<Instruction>(&s)) decode_one(*i);
    if (const auto* r = std::get_if<Registers>(&s)) declare(*r);
    if (const auto* l = std::get_if<Label>(&s))
      scopes_[static_cast<size_t>(open_.back())].labels[l->name] = static_cast<uint32_t>(kernel_.code.size());
    if (const auto* scope = std::get_if<Scope>(&s)) {
      if (*scope == Scope::close) {
        open_.pop_back();
        continue;
      }
      open_.push_back(static_cast<int>(scopes_.size()));
      scopes_.push_back({open_.back(), {}, {}});
    }
  }
  resolve_jumps();
  mark_product_registers();
}

void Decoder::declare(const Registers& r) {
  const bool is_predicate = r.type == "pred";
  const uint32_t bytes = is_predicate ? 0 : std::max(2u, static_cast<uint32_t>(bytes_of_type(r.type)));
  scopes_[static_cast<size_t>(open_.back())].registers[r.name] = {declared_, bytes, is_predicate, r.count};
  declared_ += static_cast<uint32_t>(std::max(r.count, 1));
}

uint32_t Decoder::allocate(uint32_t bytes) {
  const auto slot = static_cast<uint32_t>(aligned(kernel_.register_bytes, kSlotAlignment));
  kernel_.register_bytes = slot + bytes;
  return slot;
}

uint32_t Decoder::temporary(uint32_t bytes_per_lane) { return allocate(bytes_per_lane * kLanes); }

const Decoder::Register* Decoder::find_register(std::string_view name, uint32_t* slot) const {
  size_t digits = name.size();
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1]))) --digits;
  int number = -1;
  std::from_chars(name.data() + digits, name.data() + name.size(), number);
  for (auto scope = open_.rbegin(); scope != open_.rend(); ++scope) {
    const auto& registers = scopes_[static_cast<size_t>(*scope)].registers;
    if (const auto exact = registers.find(name); exact != registers.end() && exact->second.count < 0) {
      *slot = slots_[exact->second.first];
      return &exact->second;
    }
    const auto range = registers.find(name.substr(0, digits));
    if (range == registers.end() || number < 0 || number >= range->second.count) continue;
    const Register& r = range->second;
    *slot = slots_[r.first + static_cast<uint32_t>(number)];
    return &r;
  }
  return nullptr;
}

void Decoder::decode_one(const Instruction& i) {
  instruction_ = &i;
  modifiers_.clear();
  named_.clear();
  std::string_view rest = i.opcode;
  const std::string_view base = rest.substr(0, rest.find('.'));
  while (rest.find('.') != rest.npos) {
    rest = rest.substr(rest.find('.') + 1);
    modifiers_.push_back(rest.substr(0, rest.find('.')));
  }
  const auto found = op_table().find(base);
  if (found == op_table().end()) wrong("unknown opcode");
  found->second(*this);
  if (!modifiers_.empty()) wrong(str("unknown modifier .", modifiers_.front()));
  if (!kernel_.code.empty()) accesses_.emplace_back(kernel_.code.size() - 1, std::move(named_));
}

bool Decoder::take(std::string_view modifier) {
  const auto found = std::find(modifiers_.begin(), modifiers_.end(), modifier);
  if (found == modifiers_.end()) return false;
  modifiers_.erase(found);
  return true;
}

std::string_view Decoder::take_any(std::initializer_list<std::string_view> modifiers) {
  for (const std::string_view modifier : modifiers)
    if (take(modifier)) return modifier;
  return "";
}

bool Decoder::take_prefix(std::string_view prefix) {
  return std::erase_if(modifiers_, [&](std::string_view m) { return m.starts_with(prefix); }) > 0;
}

Type Decoder::take_type() {
  for (size_t i = 0; i < modifiers_.size(); ++i)
    if (const Type type = type_of(modifiers_[i]); type.kind != Type::Kind::none) {
      modifiers_.erase(modifiers_.begin() + static_cast<ptrdiff_t>(i));
      return type;
    }
  wrong("a type is missing");
}

const Operand& Decoder::operand(size_t i) const {
  if (i >= operands()) wrong(str("operand ", i + 1, " is missing"));
  return instruction_->operands[i];
}

uint32_t Decoder::register_of(const Operand& o, uint32_t bytes, bool is_predicate) {
  if (o.name == "_") return is_predicate ? allocate(4) : temporary(bytes);  // an unused result
  uint32_t slot = 0;
  const Register* r = find_register(o.name, &slot);
  if (!r) wrong(str(o.name, " is not a register"));
  if (r->is_predicate != is_predicate || (!is_predicate && r->bytes != bytes))
    wrong(str("register ", o.name, " has ", r->bytes * 8, " bits, the type has ", bytes * 8));
  named_.push_back(slot);
  return slot;
}

uint32_t Decoder::width_of(std::string_view name) const {
  uint32_t slot = 0;
  const Register* r = find_register(name, &slot);
  return r ? r->bytes : 0;
}

bool Decoder::is_predicate(size_t i) const {
  uint32_t slot = 0;
  const Register* r = find_register(operand(i).name, &slot);
  return r && r->is_predicate;
}

uint32_t Decoder::special(std::string_view name, uint32_t bytes) {
  if (const Handler reader = clock_reader(name, bytes)) {
    Op op;
    op.run = reader;
    op.slot[0] = temporary(bytes);
    emit(op);
    return op.slot[0];
  }
  const std::optional<Special> found = special_named(name);
  if (!found) return kNowhere;
  if (bytes != 4) wrong(str(name, " has 32 bits, the type has ", bytes * 8));
  if (!specials_.contains(name)) {
    const uint32_t slot = specials_[name] = temporary(4);
    kernel_.specials.emplace_back(slot, *found);
  }
  return specials_[name];
}

uint32_t Decoder::predicate(const Operand& o) {
  if (o.kind == Operand::Kind::integer) return predicate_literal(o.bits != 0);
  const uint32_t known = special(o.name, 4);
  const uint32_t slot = known == kNowhere ? register_of(o, 0, true) : known;
  if (!o.negated) return slot;
  Op op;  // writes the negated predicate to its own slot, just before the instruction
  op.run = [](Warp& warp, const Op& self) { warp.predicate(self.slot[0]) = ~warp.predicate(self.slot[1]); };
  op.slot = {allocate(4), slot};
  emit(op);
  return op.slot[0];
}

uint32_t Decoder::predicate_literal(bool value) {
  const auto [entry, is_new] = literals_.try_emplace(value ? "true" : "false", 0);
  if (is_new) {
    entry->second = allocate(4);
    kernel_.predicate_literals.emplace_back(entry->second, value ? kAllLanes : 0);
  }
  return entry->second;
}

uint32_t Decoder::literal(uint32_t bytes, uint64_t bits) {
  if (bytes < 8) bits &= (uint64_t{1} << (bytes * 8)) - 1;
  const auto [entry, is_new] = literals_.try_emplace(str(bytes, ':', bits), 0);
  if (is_new) {
    entry->second = temporary(bytes);
    kernel_.literals.push_back({entry->second, bytes, bits});
  }
  return entry->second;
}

uint32_t Decoder::read(const Operand& o, Type type) {
  if (type.kind == Type::Kind::pred) return predicate(o);
  const uint32_t bytes = register_bytes(type);
  switch (o.kind) {
    case Operand::Kind::integer:
      return literal(bytes, o.bits);
    case Operand::Kind::real32:
      return literal(bytes, o.bits);
    case Operand::Kind::real64:
      return literal(bytes, o.bits);
    case Operand::Kind::name:
      break;
    default:
      wrong("an operand is neither a register nor a literal");
  }
  if (const uint32_t slot = special(o.name, bytes); slot != kNowhere) return slot;
  if (const uint64_t* address = variable(o.name))
    return literal(bytes, *address + static_cast<uint64_t>(o.offset));
  return register_of(o, bytes);
}

uint64_t Decoder::integer(size_t i) const {
  if (operand(i).kind != Operand::Kind::integer) wrong(str("operand ", i + 1, " must be a literal"));
  return operand(i).bits;
}

std::vector<Operand> Decoder::elements(size_t i) const {
  const Operand& o = operand(i);
  return o.kind == Operand::Kind::list ? o.parts : std::vector<Operand>{o};
}

int64_t Decoder::slot_list(const std::vector<uint32_t>& slots) {
  const auto begin = static_cast<int64_t>(kernel_.slot_lists.size());
  kernel_.slot_lists.insert(kernel_.slot_lists.end(), slots.begin(), slots.end());
  return begin;
}

const uint64_t* Decoder::variable(std::string_view name, Space* space) const {
  if (const auto found = variables_.find(name); found != variables_.end()) {
    if (space) *space = found->second.space;
    return &found->second.address;
  }
  if (space) *space = Space::global;
  return symbols_.find(name);
}

void Decoder::address(Op& op, size_t i, size_t at, Space space) {
  const Operand& o = operand(i);
  if (o.kind != Operand::Kind::address) wrong(str("operand ", i + 1, " must be an address"));
  op.immediate = o.offset;
  op.space = space;
  op.wide_address = true;
  Space home = space;
  if (const uint64_t* address = variable(o.name, &home)) {
    op.immediate += static_cast<int64_t>(*address);
    op.space = home;
    op.slot[at] = literal(8, 0);
  } else if (o.name.empty()) {
    op.slot[at] = literal(8, 0);
  } else {
    op.wide_address = width_of(o.name) != 4;
    op.slot[at] = register_of(o, op.wide_address ? 8 : 4);
  }
}

uint32_t Decoder::whole_address(const Operand& o) {
  if (o.kind != Operand::Kind::address) wrong("an operand must be an address");
  if (const uint64_t* address = variable(o.name))
    return literal(8, *address + static_cast<uint64_t>(o.offset));
  if (o.name.empty()) return literal(8, static_cast<uint64_t>(o.offset));
  const bool is_wide = width_of(o.name) != 4;
  Op op;  // written just before
  op.run = is_wide ? offset_address<uint64_t> : offset_address<uint32_t>;
  op.immediate = o.offset;
  op.slot = {temporary(8), register_of(o, is_wide ? 8 : 4)};
  emit(op);
  return op.slot[0];
}

void Decoder::need_sm_90() const {
  if (architecture_of(module_) < 90) wrong(str("needs sm_90, the code is for ", module_.target));
}

void Decoder::emit(Op op) {
  op.index = static_cast<uint32_t>(kernel_.code.size());
  if (!instruction_->guard.empty()) {
    op.guard = register_of({.name = instruction_->guard, .second = {}, .parts = {}}, 0, true);
    op.guard_negated = instruction_->guard_negated;
  }
  if (kernel_.code.size() == kMaxOps) wrong(str("a kernel may have ", kMaxOps, " instructions"));
  kernel_.code.push_back(op);
  kernel_.instructions.push_back(instruction_);
}

void Decoder::branch_to(std::string_view label) {
  jumps_.push_back({static_cast<uint32_t>(kernel_.code.size()), label, open_, nullptr});
  Op op;
  op.flow = Flow::branch;
  emit(op);
}

void Decoder::branch_by_table(std::string_view targets) {
  Op op;
  op.flow = Flow::branch_table;
  op.slot[0] = read(0, {Type::Kind::unsigned_int, 4});
  op.immediate = static_cast<int64_t>(kernel_.branch_tables.size());
  for (const Statement& s : function_.body) {
    const auto* named = std::get_if<BranchTargets>(&s);
    if (!named || named->name != targets) continue;
    std::vector<uint32_t>& table = kernel_.branch_tables.emplace_back(named->labels.size());
    for (size_t i = 0; i < table.size(); ++i)
      jumps_.push_back({static_cast<uint32_t>(kernel_.code.size()), named->labels[i], open_, &table[i]});
    return emit(op);
  }
  wrong(str("there are no .branchtargets ", targets));
}

void Decoder::resolve_jumps() {
  for (const Jump& jump : jumps_) {
    const auto holds = [&](int scope) {
      return scopes_[static_cast<size_t>(scope)].labels.contains(jump.label);
    };
    const auto scope = std::find_if(jump.scopes.rbegin(), jump.scopes.rend(), holds);
    instruction_ = kernel_.instructions[jump.op];
    if (scope == jump.scopes.rend()) wrong(str("there is no label ", jump.label));
    const uint32_t place = scopes_[static_cast<size_t>(*scope)].labels.at(jump.label);
    if (jump.target)
      *jump.target = place;
    else
      kernel_.code[jump.op].immediate = place;
  }
}

std::unique_ptr<Kernel> decode(const Module& module, const Function& function, const Symbols& symbols,
                               uint32_t shared_shift) {
  static uint64_t kernels = 0;
  auto kernel = std::make_unique<Kernel>();
  kernel->number = ++kernels;
  kernel->module = &module;
  kernel->name = demangled(function.name);
  kernel->max_threads = function.max_threads;
  kernel->cluster = function.cluster;
  kernel->shared_shift = shared_shift;
  kernel->blocks_per_processor = function.blocks_per_processor;
  kernel->expanded = expand_calls(module, function);
  Decoder(module, kernel->expanded ? kernel->expanded->function : function, symbols, *kernel).decode_all();
  kernel->register_bytes = static_cast<uint32_t>(aligned(kernel->register_bytes, kSlotAlignment));
  return kernel;
}

}  // namespace flatshard::ptx_vm
