#pragma once
// The interface of instruction decoders: the opcode split at its dots, and the operands as slots of the
// register file. To add an opcode, add its decoder to the table of the matching ops_*.cpp. A decoder takes
// every modifier it supports; a leftover modifier is an Error.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx_vm/program.h"

namespace flatshard::ptx_vm {

struct Type {
  enum class Kind : uint8_t { none, pred, bits, unsigned_int, signed_int, f, bf, f_x2, bf_x2 };
  Kind kind = Kind::none;
  uint32_t bytes = 0;  // bytes of one lane

  bool is_integer() const { return kind >= Kind::bits && kind <= Kind::signed_int; }
  bool is_signed() const { return kind == Kind::signed_int; }
  bool is(Kind k, uint32_t n) const { return kind == k && bytes == n; }
  bool is_f32() const { return is(Kind::f, 4); }
  bool is_f64() const { return is(Kind::f, 8); }
};
// 8-bit values use 16-bit registers.
inline uint32_t register_bytes(Type type) { return type.bytes == 1 ? 2 : type.bytes; }

inline uint64_t aligned(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

Type type_of(std::string_view name);  // kind `none` if it is not a type

class Symbols {
 public:
  void add(std::string_view name, uint64_t address) { addresses_[std::string(name)] = address; }
  const uint64_t* find(std::string_view name) const {
    const auto found = addresses_.find(std::string(name));
    return found == addresses_.end() ? nullptr : &found->second;
  }

 private:
  std::unordered_map<std::string, uint64_t> addresses_;
};

class Decoder {
 public:
  Decoder(const Module& module, const Function& function, const Symbols& symbols, Kernel& kernel);
  void decode_all();

  // Modifiers of the current instruction.
  bool take(std::string_view modifier);  // true if it is present
  std::string_view take_any(
      std::initializer_list<std::string_view> modifiers);  // the modifier that is present, or ""
  bool take_prefix(std::string_view prefix);               // true if a modifier begins with it
  void take_rest() { modifiers_.clear(); }
  Type take_type();  // takes the first remaining type; an Error if there is none
  const Instruction& instruction() const { return *instruction_; }
  std::string_view base() const { return instruction_->opcode.substr(0, instruction_->opcode.find('.')); }
  size_t operands() const { return instruction_->operands.size(); }
  const Operand& operand(size_t i) const;

  // Slots of operands. Registers must have the type's width; a literal gets its own slot.
  uint32_t result(size_t i, Type type) {
    return register_of(operand(i), register_bytes(type), type.kind == Type::Kind::pred);
  }
  uint32_t read(size_t i, Type type) { return read(operand(i), type); }
  uint32_t read(const Operand& o, Type type);
  uint32_t register_of(const Operand& o, uint32_t bytes, bool is_predicate = false);
  bool is_predicate(size_t i) const;               // true for a predicate register
  uint32_t predicate(const Operand& o);            // a negated predicate gets its own slot
  uint32_t width_of(std::string_view name) const;  // bytes of a register's lanes; 0 if it is not a register
  uint32_t literal(uint32_t bytes, uint64_t bits);
  uint32_t predicate_literal(bool value);
  uint32_t temporary(uint32_t bytes_per_lane);
  uint64_t integer(size_t i) const;                       // value of an operand that must be a literal
  std::vector<Operand> elements(size_t i) const;          // elements of a list, or the single operand
  int64_t slot_list(const std::vector<uint32_t>& slots);  // returns the first index in slot_lists
  // Sets the op's base slot (into slot[at]), immediate, width and space from [base+offset].
  void address(Op& op, size_t i, size_t at, Space space);
  // Returns a 64-bit slot with base + offset, for ops with several addresses.
  uint32_t whole_address(size_t i) { return whole_address(operand(i)); }
  uint32_t whole_address(const Operand& o);
  // Throws an Error if the code is for an architecture older than sm_90.
  void need_sm_90() const;
  // Returns the address of a variable in this space, as for cvta; null if the name is not a variable.
  const uint64_t* variable(std::string_view name, Space* space = nullptr) const;

  void emit(Op op);
  void emit_product(Op op, ProductForm form);
  void use_warpgroups() { kernel_.uses_warpgroups = true; }
  bool has_register_budget() const { return kernel_.max_threads && kernel_.blocks_per_processor; }
  void branch_to(std::string_view label);
  void branch_by_table(std::string_view targets);
  [[noreturn]] void wrong(const std::string& what) const;

 private:
  struct Register {
    uint32_t first, bytes;  // index of its first register among all declared ones; bytes per register
    bool is_predicate;
    int count;
  };
  struct Place {
    Space space;
    uint64_t address;
  };
  struct Names {
    int id;
    std::unordered_map<std::string_view, Register> registers;
    std::unordered_map<std::string_view, uint32_t> labels;
  };
  struct Jump {
    uint32_t op;
    std::string_view label;
    std::vector<int> scopes;
    uint32_t* target = nullptr;  // an entry of a branch table; null: the op itself
  };

  void lay_out_variables();
  void place_shared(const Variable& v);
  void place_local(const Variable& v);
  void declare(const Registers& r);
  void decode_one(const Instruction& i);
  const Register* find_register(std::string_view name, uint32_t* slot) const;
  uint32_t special(std::string_view name, uint32_t bytes);
  uint32_t allocate(uint32_t bytes);
  void resolve_jumps();
  void mark_product_registers();

  const Module& module_;
  const Function& function_;
  const Symbols& symbols_;
  Kernel& kernel_;
  const Instruction* instruction_ = nullptr;
  std::vector<std::string_view> modifiers_;
  std::vector<uint32_t> slots_;  // slots of declared registers
  uint32_t declared_ = 0;
  std::vector<Names> scopes_;
  std::vector<int> open_;  // indices into scopes_
  std::unordered_map<std::string_view, Place> variables_;
  std::unordered_map<std::string, uint32_t> literals_;
  std::unordered_map<std::string_view, uint32_t> specials_;
  std::vector<Jump> jumps_;
  std::vector<uint32_t> named_;                                       // slots of the current instruction
  std::vector<std::pair<uint32_t, std::vector<uint32_t>>> accesses_;  // accesses of every op
};

// Returns the handler that reads a special register which changes as the kernel runs, such as a clock, into
// slot[0]. Returns null for other names.
Handler clock_reader(std::string_view name, uint32_t bytes);

using DecodeOp = void (*)(Decoder&);
using OpTable = std::unordered_map<std::string_view, DecodeOp>;
void add_arithmetic_ops(OpTable& table);
void add_bit_ops(OpTable& table);
void add_compare_ops(OpTable& table);
void add_convert_ops(OpTable& table);
void add_move_ops(OpTable& table);
void add_memory_ops(OpTable& table);
void add_atomic_ops(OpTable& table);
void add_call_ops(OpTable& table);
void add_warp_ops(OpTable& table);
void add_tensor_ops(OpTable& table);
void add_async_copy_ops(OpTable& table);
void add_control_ops(OpTable& table);
void add_fence_ops(OpTable& table);
void add_mbarrier_ops(OpTable& table);
void add_bulk_ops(OpTable& table);
void add_cluster_ops(OpTable& table);
void add_wgmma_ops(OpTable& table);

}  // namespace flatshard::ptx_vm
