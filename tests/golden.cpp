#include "tests/golden.h"

#include <algorithm>
#include <filesystem>

#include "checkpoint/safetensors.h"
#include "runtime/check.h"
#include "source_dir.h"

namespace flatshard::test {
namespace {

template <class T>
std::vector<double> read_values(const FileRange& bytes) {
  std::vector<T> elements(static_cast<size_t>(bytes.size) / sizeof(T));
  bytes.read(0, bytes.size, elements.data());
  std::vector<double> values;
  for (const T& element : elements) values.push_back(static_cast<double>(element));
  return values;
}

std::vector<double> read_values(const SafetensorsEntry& entry) {
  if (entry.dtype == "F32") return read_values<float>(entry.bytes);
  if (entry.dtype == "BF16") return read_values<bf16>(entry.bytes);
  if (entry.dtype == "F16") return read_values<f16>(entry.bytes);
  if (entry.dtype == "I32") return read_values<int32_t>(entry.bytes);
  if (entry.dtype == "I64") return read_values<int64_t>(entry.bytes);
  if (entry.dtype == "U8") return read_values<uint8_t>(entry.bytes);
  fail(str("golden dtype ", entry.dtype, " is not known"));
}

}  // namespace

std::string base_of_adapter(const std::string& name) {
  const bool is_base = std::filesystem::exists(str(kSourceDir, "/tests/golden/folders/", name));
  return is_base ? name : name.substr(0, name.rfind('_'));
}

std::map<std::string, GoldenTensor> load_golden(const std::string& name) {
  const SafetensorsFile file(str(kSourceDir, "/tests/golden/", name, ".safetensors"));
  std::map<std::string, GoldenTensor> tensors;
  for (const SafetensorsEntry& entry : file.entries())
    tensors[entry.name] = {entry.dtype, entry.shape, read_values(entry)};
  return tensors;
}

double golden_error(const bench::Case& c, const std::string& name) {
  const std::map<std::string, GoldenTensor> golden = load_golden(name);
  bench::Setup setup(c);
  std::vector<std::string> outputs;
  for (const bench::Arg& arg : c.args) {
    const bool written = arg.role == bench::Role::output || arg.role == bench::Role::updated;
    const auto found = golden.find(arg.name);
    if (written && found != golden.end()) outputs.push_back(arg.name);
    if (arg.role == bench::Role::updated) {  // the file contains 0 + gradient
      const auto start = golden.find(arg.name + "_before");
      setup.assign(arg.name, start != golden.end()
                                 ? start->second.values
                                 : std::vector<double>(static_cast<size_t>(arg.shape.size())));
    } else if (!written && (arg.role != bench::Role::saved || found != golden.end())) {
      check(found != golden.end(), name, ".safetensors has no tensor ", arg.name);
      setup.assign(arg.name, found->second.values);
    }
  }
  check(!outputs.empty(), name, ".safetensors has no output of ", c.op);
  if (c.prepare) c.prepare(setup.stream(), setup.scratch(), setup.tensors());
  setup.run();
  double worst = 0;
  for (const std::string& output : outputs)
    worst = std::max(worst, bench::max_error(setup.values(output), golden.at(output).values));
  return worst;
}

}  // namespace flatshard::test
