#include "tests/golden.h"

#include <cstring>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "build_config.h"
#include "runtime/check.h"

namespace flatshard::test {
namespace {

template <class T>
std::vector<double> read_values(const std::string& bytes, size_t begin, size_t end) {
  std::vector<T> elements((end - begin) / sizeof(T));
  std::memcpy(static_cast<void*>(elements.data()), bytes.data() + begin, end - begin);
  std::vector<double> values;
  for (const T& element : elements) values.push_back(static_cast<double>(element));
  return values;
}

std::vector<double> read_values(const std::string& dtype, const std::string& bytes, size_t begin,
                                size_t end) {
  check(begin <= end && end <= bytes.size(), "golden tensor ends at byte ", end, " of ", bytes.size());
  if (dtype == "F32") return read_values<float>(bytes, begin, end);
  if (dtype == "BF16") return read_values<bf16>(bytes, begin, end);
  if (dtype == "F16") return read_values<f16>(bytes, begin, end);
  if (dtype == "I32") return read_values<int32_t>(bytes, begin, end);
  if (dtype == "U8") return read_values<uint8_t>(bytes, begin, end);
  fail(str("golden dtype ", dtype, " is not known"));
}

}  // namespace

std::map<std::string, GoldenTensor> load_golden(const std::string& name) {
  const std::string path = str(kSourceDir, "/tests/golden/", name, ".safetensors");
  std::ifstream file(path, std::ios::binary);
  check(file.good(), "cannot open ", path);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  uint64_t header_bytes = 0;
  check(bytes.size() >= 8, path, " is too short");
  std::memcpy(&header_bytes, bytes.data(), 8);
  check(header_bytes <= bytes.size() - 8, path, ": the header is longer than the file");
  const size_t data = 8 + header_bytes;
  std::map<std::string, GoldenTensor> tensors;
  const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, header_bytes));
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    const std::string dtype = entry.at("dtype");
    const auto offsets = entry.at("data_offsets").get<std::vector<size_t>>();
    tensors[key] = {dtype, entry.at("shape"),
                    read_values(dtype, bytes, data + offsets.at(0), data + offsets.at(1))};
  }
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
    if (arg.role == bench::Role::updated) {  // the file holds the sum of a zero and the gradient
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
