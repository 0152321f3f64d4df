#include "tests/ptx_vm/ptx_mutation.h"

#include <algorithm>

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/registry.h"
#include "tests/kernels/outputs.h"
#include "tests/test.h"

namespace flatshard::ptx_vm {
namespace {

using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
  Lines lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Where the body ends of a kernel whose name is at `entry`: braces of asm are no end.
size_t end_of_body(const std::string& ptx, size_t entry) {
  const size_t next = std::min({ptx.find(".entry", entry + 1), ptx.find("\n.file", entry), ptx.size()});
  return ptx.rfind("\n}", next) + 2;
}

// The body of the kernel whose mangled name contains `name`, in the PTX of a file.
struct Body {
  size_t start;       // where the line of `.entry` begins
  size_t begin, end;  // what the braces enclose
};
Body body_of(const std::string& ptx, const std::string& name) {
  for (size_t at = 0; (at = ptx.find(".entry", at)) != ptx.npos; ++at) {
    const size_t parameters = ptx.find('(', at);
    if (ptx.substr(at, parameters - at).find(name) == std::string::npos) continue;
    return {ptx.rfind('\n', at), ptx.find("\n{", parameters), end_of_body(ptx, at)};
  }
  fail(str("no kernel is named like ", name));
}

// What a text declares beside kernels: the text without `.entry` and the bodies that follow it.
std::string declarations(const std::string& ptx) {
  std::string result;
  for (size_t begin = 0; begin < ptx.size();) {
    const size_t entry = ptx.find(".entry", begin);
    if (entry == ptx.npos) return result + ptx.substr(begin);
    result += ptx.substr(begin, ptx.rfind('\n', entry) - begin);
    begin = end_of_body(ptx, entry);
  }
  return result;
}

// The PTX of a kernel with one of its lines changed that match: the one numbered `which`. `changed` is that
// line. Other kernels of the file are left out, because reading them takes longer than running this one.
std::string edited(const std::string& ptx, const std::string& mangled, const Mutation& mutation, size_t which,
                   std::string& changed, size_t& found) {
  const Body body = body_of(ptx, mangled);
  std::string result =
      declarations(ptx.substr(0, body.start)) + ptx.substr(body.start, body.begin - body.start);
  found = 0;
  for (const std::string& line : lines_of(ptx.substr(body.begin, body.end - body.begin))) {
    const bool is_it = std::regex_search(line, mutation.pattern) && (found++ == which || mutation.everywhere);
    if (is_it) changed = line;
    result += (is_it ? std::regex_replace(line, mutation.pattern, mutation.with) : line) + '\n';
  }
  return result + declarations(ptx.substr(body.end));
}

// Whether the machine has a finding or the outputs differ when asynchronous work runs late, or else early.
bool is_noticed(const bench::Case& c, const std::vector<std::vector<unsigned char>>& expected) {
  for (const AsyncTiming timing : {AsyncTiming::late, AsyncTiming::early}) {
    const ScopedOptions options({.async = timing});
    bool differs = false;
    try {
      differs = test::output_bytes(c, {.device = Device::cuda(0)}) != expected;
    } catch (const Error&) {
      differs = true;
    }
    if (!take_findings().empty() || differs) return true;
  }
  return false;
}

}  // namespace

int check_mutations(const MutatedKernel& kernel, const std::vector<Mutation>& mutations, const bench::Case& c,
                    size_t most_places) {
  int mutants = 0;
  const auto expected = test::output_bytes(c, {.device = Device::cuda(0)});
  for (const Mutation& mutation : mutations) {
    size_t found = 1;  // more are known after the first run
    const auto places = [&] { return mutation.everywhere ? 1 : std::min(found, most_places); };
    for (size_t i = 0; i < places(); ++i) {
      const size_t which = i * found / places();
      std::string changed;
      const ScopedEdit edit(kernel.demangled, [&](const std::string& ptx) {
        return edited(ptx, kernel.mangled, mutation, which, changed, found);
      });
      const bool noticed = is_noticed(c, expected);
      if (found == 0) break;  // this kernel has none
      CAPTURE(kernel.demangled);
      CAPTURE(mutation.name);
      CAPTURE(changed);
      CHECK(noticed);
      ++mutants;
    }
  }
  return mutants;
}

}  // namespace flatshard::ptx_vm
