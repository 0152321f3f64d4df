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

// The body of the kernel whose mangled name contains `name`, in the PTX of a file.
struct Body {
  size_t begin, end;
};
Body body_of(const std::string& ptx, const std::string& name) {
  for (size_t at = 0; (at = ptx.find(".entry", at)) != ptx.npos; ++at) {
    const size_t parameters = ptx.find('(', at);
    if (ptx.substr(at, parameters - at).find(name) == std::string::npos) continue;
    const size_t begin = ptx.find("\n{", parameters);
    return {begin, std::min(ptx.find(".entry", begin), ptx.size())};  // braces of asm are no end
  }
  fail(str("no kernel is named like ", name));
}

// The PTX of a file with one of the lines of a kernel changed that match: the one numbered `which`. `changed`
// is that line.
std::string edited(const std::string& ptx, const std::string& mangled, const Mutation& mutation, size_t which,
                   std::string& changed, size_t& found) {
  const Body body = body_of(ptx, mangled);
  std::string result = ptx.substr(0, body.begin);
  found = 0;
  for (const std::string& line : lines_of(ptx.substr(body.begin, body.end - body.begin))) {
    const bool is_it = std::regex_search(line, mutation.pattern) && (found++ == which || mutation.everywhere);
    if (is_it) changed = line;
    result += (is_it ? std::regex_replace(line, mutation.pattern, mutation.with) : line) + '\n';
  }
  return result + ptx.substr(body.end);
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
