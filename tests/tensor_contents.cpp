#include "tests/tensor_contents.h"

#include "checkpoint/safetensors.h"
#include "runtime/check.h"

namespace flatshard::test {
namespace {

DType dtype_named(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::u8})
    if (safetensors_name(dtype) == name) return dtype;
  fail("no test has tensors of " + name);
}

}  // namespace

TensorContents read_contents(const std::string& path) {
  TensorContents contents;
  const SafetensorsFile file(path);
  for (const SafetensorsEntry& entry : file.entries()) {
    TensorContent& content = contents[entry.name] = {dtype_named(entry.dtype), entry.shape, {}};
    content.bytes.resize(static_cast<size_t>(entry.bytes.size));
    entry.bytes.read(0, entry.bytes.size, content.bytes.data());
  }
  return contents;
}

void write_contents(const std::string& path, const TensorContents& contents) {
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, c] : contents) specs.push_back({.name = name, .dtype = c.dtype, .shape = c.shape});
  const SafetensorsLayout layout(specs);
  SafetensorsWriter writer(path, layout, true);
  for (size_t i = 0; i < specs.size(); ++i)
    writer.write(i, 0, contents.at(specs[i].name).bytes.data(), layout.elements(i));
  writer.finish();
}

void shorten(TensorContent& content) {
  const size_t entries = static_cast<size_t>(content.shape.front());
  content.bytes.resize(content.bytes.size() / entries * (entries - 1));
  --content.shape.front();
}

}  // namespace flatshard::test
