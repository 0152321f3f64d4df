#pragma once
// The syntax tree of a PTX module: variables, functions and their statements, with unresolved names. All
// names are views into the module's text.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace flatshard::ptx_vm {

// A location in the CUDA source, from .loc.
struct Location {
  int file = 0, line = 0, column = 0;
  int inlined_at = -1;  // index of the call's location in Module::locations, or -1
};

struct Operand {
  enum class Kind { name, integer, real32, real64, address, list };
  Kind kind = Kind::name;
  std::string_view name;    // a register, symbol or label; the base of an address, empty for an absolute one
  std::string_view second;  // %p1 of %r1|%p1
  uint64_t bits = 0;        // value of a literal
  int64_t offset = 0;       // offset of an address, or of symbol+offset
  bool negated = false;     // !%p1
  std::vector<Operand> parts;
};

struct Instruction {
  std::string_view opcode{};  // opcode with all modifiers: "ld.global.v4.f32"
  std::string_view guard{};   // the predicate of @%p, or empty
  bool guard_negated = false;
  std::vector<Operand> operands{};
  int line;                             // line of the PTX text
  int location;                         // index into Module::locations, or -1
  const Instruction* caller = nullptr;  // the expanded call that this came from (expand.h)
};

struct Label {
  std::string_view name;
};

struct Registers {
  std::string_view type;  // "b32", "pred"
  std::string_view name;  // "%r" with count 5 declares %r0 ... %r4
  int count = -1;         // -1: only the name itself
};

struct Variable {
  std::string_view space;  // "global", "const", "shared", "local", "param"
  std::string_view name{};
  std::string_view type{};  // type of an element
  uint64_t align = 1, bytes = 0;
  bool is_external = false;
  std::vector<uint64_t> initial{};  // elements; the rest is zero
};

// The targets declared as name: .branchtargets A, B;
struct BranchTargets {
  std::string_view name;
  std::vector<std::string_view> labels;
};

enum class Scope { open, close };
using Statement = std::variant<Instruction, Label, Registers, Variable, BranchTargets, Scope>;

struct Function {
  std::string_view name;
  bool is_entry = false;
  bool has_body = false;
  std::vector<Variable> parameters, results;
  std::array<uint32_t, 3> cluster{};  // value of .reqnctapercluster
  uint32_t blocks_per_processor = 0;  // .minnctapersm; 0: not declared
  uint32_t max_threads = 0;           // product of .maxntid or .reqntid; 0: not declared
  std::vector<Statement> body;
};

struct Module {
  std::string text;
  std::string_view target;  // "sm_80"
  std::vector<Variable> variables;
  std::vector<Function> functions;
  std::vector<Location> locations;
  std::unordered_map<int, std::string_view> files;
};

// Returns 80 for "sm_80", 90 for "sm_90a".
int architecture_of(const Module& module);

// The size of one element of a type such as "f32"; 0 for an unknown type.
uint64_t bytes_of_type(std::string_view type);

// Parses a module. An Error names the line of the PTX and the unexpected token.
std::unique_ptr<Module> parse(std::string text);

// Returns "kernels/adamw.cu:52" and the calls that inlined it; "PTX line 7" without a .loc.
std::string describe_location(const Module& module, int location, int ptx_line);

}  // namespace flatshard::ptx_vm
