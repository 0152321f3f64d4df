// Folders that transformers and bitsandbytes wrote (tests/golden/quantized_folders.py), files written here,
// and damaged ones.

#include "hub/quantized/quantized_tensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>

#include "checkpoint/float_values.h"
#include "checkpoint/tensor_folder.h"
#include "hub/quantized/quantizing_source.h"
#include "source_dir.h"
#include "tests/golden.h"
#include "tests/tensor_contents.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

const std::string kGolden = str(kSourceDir, "/tests/golden/");
const std::string kFile = "quantized_tensors_test.safetensors";
constexpr char kName[] = "a.weight";
using Bytes = std::vector<std::byte>;

TensorEntries entries_of(const SafetensorsFile& file) {
  TensorEntries entries;
  for (const SafetensorsEntry& entry : file.entries()) entries[entry.name] = &entry;
  return entries;
}

std::vector<float> read(QuantizedTensors& tensors, const std::string& name, int64_t first, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  tensors.read(name, first, count, values.data());
  return values;
}

Bytes read_part(const QuantizedTensors& tensors, const FourBitWeight& weight, const std::string& name,
                QuantizedPart part) {
  Bytes bytes(static_cast<size_t>(elements_of_part(weight, part) * size_of(dtype_of_part(weight, part))));
  tensors.read_bytes(name + suffix_of(part), 0, std::ssize(bytes), bytes.data());
  return bytes;
}

// The largest difference of two lists of codes.
int code_difference(const Bytes& a, const Bytes& b) {
  int most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(std::to_integer<int>(a[i]) - std::to_integer<int>(b[i])));
  return most;
}

// A file of tensors that a test changes.
struct TestFile {
  // A weight of 10 x 70 random values.
  explicit TestFile(bool nested = true, DType storage = DType::u8) {
    state.weight = {.format = {.nested = nested}, .out = 10, .in = 70};
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 0.1f);
    for (int i = 0; i < 700; ++i) values.push_back(normal(random));
    QuantizingSource source([&](const std::string&, int64_t first, int64_t count,
                                float* to) { std::copy_n(values.begin() + first, count, to); },
                            {{kName, state.weight}}, false);
    const auto part = [&](const std::string& name, Bytes& to) {
      source.read_bytes(name, 0, std::ssize(to), to.data());
    };
    Bytes offset(sizeof(float));
    if (nested) part(str(kName, ".nested_offset"), offset);
    std::memcpy(&state.nested_offset, offset.data(), sizeof(float));
    for (const SafetensorsSpec& spec : quantized_specs(kName, state, storage)) {
      int64_t bytes = size_of(spec.dtype);
      for (const int64_t extent : spec.shape) bytes *= extent;
      test::TensorContent& made =
          content[spec.name] = {spec.dtype, spec.shape, Bytes(static_cast<size_t>(bytes))};
      if (spec.name.find("quant_state") == std::string::npos) part(spec.name, made.bytes);
    }
    describe(quant_state_json(state));
  }

  std::string state_name() const { return str(kName, kQuantStateInfix, "nf4"); }
  void describe(const std::string& text) {
    test::TensorContent& made = content[state_name()];
    made = {DType::u8, {std::ssize(text)}, Bytes(text.size())};
    std::memcpy(made.bytes.data(), text.data(), text.size());
  }
  void rename(const std::string& from, const std::string& to) {
    content[to] = content.at(from);
    content.erase(from);
  }

  std::unique_ptr<SafetensorsFile> write() const {
    test::write_contents(kFile, content);
    return std::make_unique<SafetensorsFile>(kFile);
  }
  // What opening it fails with, without "FILE: ".
  std::string error() const {
    const auto file = write();
    const std::string error = test::error_of([&] { QuantizedTensors(kFile, entries_of(*file)); });
    CHECK(error.starts_with(kFile + ": "));
    return error.substr(std::min(error.size(), kFile.size() + 2));
  }

  QuantState state;
  std::vector<float> values;
  test::TensorContents content;
};

struct Published {
  const char* name;
  FourBitFormat format;
  size_t weights;
};
const Published kPublished[] = {
    {"llama", {.kind = FourBitKind::nf4, .nested = true}, 7},
    {"mistral", {.kind = FourBitKind::nf4}, 14},
    {"qwen2", {.kind = FourBitKind::fp4}, 14},
    {"qwen3", {.kind = FourBitKind::nf4, .nested = true}, 11},
    {"gpt2", {.kind = FourBitKind::nf4, .nested = true}, 8},
};

}  // namespace

TEST_CASE("4-bit weights that bitsandbytes wrote dequantize to its values, bit for bit, in any range") {
  std::mt19937 random(1);
  for (const Published& published : kPublished) {
    CAPTURE(published.name);
    const std::string folder = str("quantized_folders/", published.name);
    const TensorFolder files(kGolden + folder, "model");
    QuantizedTensors tensors(files.path(), files.entries());
    CHECK(tensors.weights().size() == published.weights);
    int compared = 0;
    for (const auto& [name, golden] : test::load_golden(folder + "/expected")) {
      if (!name.starts_with("dequantized.")) continue;
      const std::string weight = name.substr(std::string("dequantized.").size());
      CHECK(tensors.weights().at(weight).format == published.format);
      const std::vector<float> expected(golden.values.begin(), golden.values.end());
      CHECK(read(tensors, weight, 0, std::ssize(expected)) == expected);
      for (int i = 0; i < 10; ++i) {
        const int64_t first = random() % expected.size(), count = random() % (expected.size() - first + 1);
        const std::vector<float> part(expected.begin() + first, expected.begin() + first + count);
        CHECK(read(tensors, weight, first, count) == part);
      }
      ++compared;
    }
    CHECK(compared == 2);
  }
}

TEST_CASE("weights quantized here have the bytes that bitsandbytes makes of the same values") {
  for (const auto& [name, dtype] :
       {std::pair{"mistral", DType::f32}, {"qwen3", DType::f16}, {"gpt2", DType::f32}}) {
    CAPTURE(name);
    const TensorFolder base(str(kGolden, "folders/", name), "model"),
        files(str(kGolden, "quantized_folders/", name), "model");
    QuantizedTensors tensors(files.path(), files.entries());
    std::vector<std::byte> rounded;
    QuantizingSource source(
        [&, as = dtype](const std::string& weight, int64_t first, int64_t count, float* to) {
          read_as(*base.find(weight), first, count, as, rounded);
          visit_float(as,
                      [&]<class T>() { std::copy_n(reinterpret_cast<const T*>(rounded.data()), count, to); });
        },
        tensors.weights(), std::string(name) == "gpt2");
    for (const auto& [weight_name, weight] : tensors.weights())
      for (const QuantizedPart part : parts_of(weight.format)) {
        CAPTURE(weight_name);
        CAPTURE(suffix_of(part));
        const Bytes expected = read_part(tensors, weight, weight_name, part);
        Bytes made(expected.size());
        source.read_bytes(weight_name + suffix_of(part), 0, std::ssize(made), made.data());
        // The nested table and, with it, single codes may differ in the last bit (kernels/dynamic_table.h).
        if (part == QuantizedPart::codes || part == QuantizedPart::table)
          CHECK(made == expected);
        else if (weight.format.nested && part == QuantizedPart::absmax)
          CHECK(code_difference(made, expected) <= 1);
      }
  }
}

TEST_CASE("a written weight is read back byte by byte, for every storage dtype, nested and not") {
  for (const bool nested : {false, true})
    for (const DType storage : {DType::u8, DType::bf16, DType::f16}) {
      const TestFile made(nested, storage);
      const auto file = made.write();
      QuantizedTensors tensors(kFile, entries_of(*file));
      CHECK(tensors.names().size() == made.content.size());
      const QuantState& state = tensors.state(kName);
      CHECK(state.weight.format == made.state.weight.format);
      CHECK(state.nested_offset == made.state.nested_offset);
      for (const auto& [name, content] : made.content) {
        if (name == made.state_name()) continue;
        Bytes bytes(content.bytes.size());
        tensors.read_bytes(name, 0, std::ssize(bytes), bytes.data());
        CHECK(bytes == content.bytes);
        tensors.read_bytes(name, 1, 3, bytes.data());
        CHECK(std::equal(bytes.begin(), bytes.begin() + 3, content.bytes.begin() + 1));
      }
      const std::vector<float> values = read(tensors, kName, 0, 700);
      for (size_t i = 0; i < values.size(); ++i) CHECK(std::abs(values[i] - made.values[i]) < 0.06f);
    }
  CHECK(
      test::error_of([] { TestFile(false, DType::f32); }) ==
      "a.weight: its 350 bytes of codes are not a whole number of float32 elements; choose the storage dtype "
      "uint8");
}

TEST_CASE("the tables of a file are used, not the built-in ones") {
  for (const bool nested : {false, true}) {
    TestFile made(nested);
    const auto file = made.write();
    QuantizedTensors tensors(kFile, entries_of(*file));
    std::vector<float> expected = read(tensors, kName, 0, 700);
    for (float& value : expected) value *= 2;
    float* table = made.content[str(kName, ".quant_map")].as<float>();
    for (int i = 0; i < 16; ++i) table[i] *= 2;
    const auto changed = made.write();
    QuantizedTensors doubled(kFile, entries_of(*changed));
    CHECK(read(doubled, kName, 0, 700) == expected);
  }
}

TEST_CASE("parts that do not fit quant_state are errors that name tensor, value and bound") {
  const std::string absmax = str(kName, ".absmax"), groups = str(kName, ".nested_absmax"),
                    map = str(kName, ".quant_map"), nested_map = str(kName, ".nested_quant_map");
  const auto error_with = [](bool nested, auto&& change) {
    TestFile made(nested);
    change(made);
    return made.error();
  };
  CHECK(error_with(true, [&](TestFile& f) { test::shorten(f.content[kName]); }) ==
        "a.weight has 349 bytes of codes, but 10 x 70 elements have 350");
  CHECK(error_with(false, [&](TestFile& f) { test::shorten(f.content[absmax]); }) ==
        "a.weight.absmax is F32 [10], but for 10 x 70 elements in blocks of 64 it must be F32 [11]");
  CHECK(error_with(true, [&](TestFile& f) { test::shorten(f.content[absmax]); }) ==
        "a.weight.absmax is U8 [10], but for 10 x 70 elements in blocks of 64, nested, it must be U8 [11]");
  CHECK(error_with(true, [&](TestFile& f) {
          test::shorten(f.content[groups]);
        }).starts_with("a.weight.nested_absmax is F32 [0], "));
  CHECK(
      error_with(true, [&](TestFile& f) { test::shorten(f.content[map]); }).ends_with("it must be F32 [16]"));
  CHECK(error_with(true, [&](TestFile& f) {
          test::shorten(f.content[nested_map]);
        }).ends_with("it must be F32 [256]"));
  CHECK(error_with(true, [&](TestFile& f) { f.content.erase(map); }) ==
        "a.weight.quant_map is missing; a.weight is quantized");
  CHECK(error_with(true, [&](TestFile& f) { f.content.erase(kName); }) ==
        "a.weight is missing; a.weight is quantized");
  CHECK(error_with(true, [&](TestFile& f) { f.content.erase(f.state_name()); }) ==
        "a.weight.absmax: a.weight.quant_state.bitsandbytes__nf4 (or fp4) is missing");
  CHECK(error_with(true, [&](TestFile& f) {
          f.content[kName].dtype = DType::i32, f.content[kName].shape = {87},
          f.content[kName].bytes.resize(348);
        }) == "a.weight is I32, but it is quantized and must be U8, BF16, F16 or F32");
  CHECK(error_with(false, [&](TestFile& f) { f.content[groups] = f.content[map]; }) ==
        "a.weight.nested_absmax is unexpected: quant_state describes no nested scales");
  CHECK(error_with(true, [&](TestFile& f) { f.content[str(kName, ".nested_offset")] = f.content[map]; }) ==
        "a.weight.nested_offset is unexpected: the offset is in quant_state");
}

TEST_CASE("a weight with no, two or wrong descriptions is an error") {
  const auto error_with = [](auto&& change) {
    TestFile made(true);
    change(made);
    return made.error();
  };
  const std::string fp4 = str(kName, kQuantStateInfix, "fp4");
  CHECK(error_with([&](TestFile& f) { f.content[fp4] = f.content[f.state_name()]; }).find("must be") !=
        std::string::npos);
  CHECK(error_with([&](TestFile& f) { f.rename(f.state_name(), fp4); }) ==
        fp4 + ": its quant_type is nf4, so its name must be a.weight.quant_state.bitsandbytes__nf4");
  CHECK(error_with([&](TestFile& f) { f.content["a.weight.quant_state.x"] = f.content[f.state_name()]; }) ==
        "a.weight.quant_state.x: a.weight has a second quant_state, must have one");
  CHECK(error_with([](TestFile& f) { f.rename(f.state_name(), "a.quant_state.bitsandbytes__nf4"); }) ==
        "a.quant_state.bitsandbytes__nf4: describes a, must describe the weight of a layer");
  CHECK(error_with([](TestFile& f) {
          f.content[f.state_name()].dtype = DType::bf16, f.content[f.state_name()].shape = {1},
          f.content[f.state_name()].bytes.resize(2);
        }) == "a.weight.quant_state.bitsandbytes__nf4 is BF16, must be U8");
  CHECK(error_with([](TestFile& f) { f.describe(std::string(70000, ' ')); }) ==
        "a.weight.quant_state.bitsandbytes__nf4: has 70000 bytes, must have at most 65536");
  CHECK(error_with([](TestFile& f) { f.describe("{}"); }) ==
        "a.weight.quant_state.bitsandbytes__nf4: quant_type is missing");
}

TEST_CASE("a scale that is not finite is an error that names it") {
  TestFile made(false);
  made.content[str(kName, ".absmax")].as<float>()[3] = std::numeric_limits<float>::infinity();
  const auto file = made.write();
  QuantizedTensors tensors(kFile, entries_of(*file));
  const std::string expected =
      kFile +
      ": a.weight.absmax: element 3 is inf, must be finite: the weights are damaged: download them again";
  CHECK(test::error_of([&] { read(tensors, kName, 150, 100); }) == expected);
  CHECK(test::error_of([&] { read(tensors, kName, 0, 190); }) == "");
}
