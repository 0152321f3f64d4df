#include "hub/quantized/quantizing_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "checkpoint/float_values.h"
#include "kernels/dynamic_table.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr char kName[] = "layer.weight";
using Bytes = std::vector<std::byte>;

// A weight with random values, quantized as a whole by the kernels.
struct Whole {
  explicit Whole(const FourBitWeight& of) : weight(of), values(static_cast<size_t>(of.elements())) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 0.1f);
    for (float& value : values) value = normal(random);
    parts[""].resize(static_cast<size_t>(code_bytes(weight.elements())));
    std::vector<float> absmax(static_cast<size_t>(weight.blocks()));
    StreamSet streams(Device::cpu());
    Stream& stream = streams.add("test");
    quantize_four_bit(stream, {.codes = tensor_of(as<uint8_t>(""), {std::ssize(parts[""])}),
                               .absmax = tensor_of(absmax.data(), {weight.blocks()}),
                               .x = tensor_of(values.data(), {weight.elements()}),
                               .kind = weight.format.kind,
                               .block = weight.format.block});
    set(".quant_map", four_bit_table(weight.format.kind));
    if (weight.format.nested)
      nest(stream, absmax);
    else
      set(".absmax", absmax);
  }

  void nest(Stream& stream, std::vector<float>& absmax) {
    const int64_t groups = block_count(weight.blocks(), kNestedBlock);
    parts[".absmax"].resize(absmax.size());
    parts[".nested_absmax"].resize(4 * static_cast<size_t>(groups));
    parts[".nested_offset"].resize(4);
    quantize_scales(stream, {.codes = tensor_of(as<uint8_t>(".absmax"), {weight.blocks()}),
                             .nested_absmax = tensor_of(as<float>(".nested_absmax"), {groups}),
                             .nested_offset = tensor_of(as<float>(".nested_offset"), {1}),
                             .absmax = tensor_of(absmax.data(), {weight.blocks()})});
    set(".nested_quant_map", dynamic_table(true));
  }

  template <class T>
  T* as(const std::string& part) {
    return reinterpret_cast<T*>(parts[part].data());
  }
  template <class Values>
  void set(const std::string& part, const Values& of) {
    parts[part].resize(std::size(of) * sizeof(float));
    std::memcpy(parts[part].data(), std::data(of), parts[part].size());
  }
  ReadValues reader() {
    return [this](const std::string& name, int64_t first, int64_t count, float* to) {
      CHECK(name == kName);
      std::copy_n(values.begin() + first, count, to);
      values_read += count;
    };
  }
  QuantizingSource source(bool transposed = false) { return {reader(), {{kName, weight}}, transposed}; }

  FourBitWeight weight;
  std::vector<float> values;
  std::map<std::string, Bytes> parts;
  int64_t values_read = 0;
};

Bytes read(QuantizingSource& source, const std::string& part, int64_t first, int64_t count) {
  Bytes bytes(static_cast<size_t>(count));
  source.read_bytes(kName + part, first, count, bytes.data());
  return bytes;
}

Bytes slice(const Bytes& bytes, int64_t first, int64_t count) {
  return {bytes.begin() + first, bytes.begin() + first + count};
}

// Weights whose sizes are and are not multiples of blocks, rows and groups of scales.
std::vector<FourBitWeight> weights() {
  std::vector<FourBitWeight> all;
  for (const bool nested : {false, true})
    for (const auto& [block, out, in] :
         {std::tuple{64, 48, 32}, {64, 5, 13}, {32, 300, 47}, {4096, 130, 101}, {64, 1100, 1000}})
      all.push_back({.format = {.kind = block == 32 ? FourBitKind::fp4 : FourBitKind::nf4,
                                .block = block,
                                .nested = nested},
                     .out = out,
                     .in = in});
  return all;
}

}  // namespace

TEST_CASE("any range of bytes of any part is that of the weight quantized as a whole") {
  std::mt19937 random(5);
  for (const FourBitWeight& weight : weights()) {
    CAPTURE(weight.format.nested);
    CAPTURE(weight.out);
    Whole whole(weight);
    QuantizingSource source = whole.source();
    for (const auto& [part, bytes] : whole.parts) {
      CAPTURE(part);
      CHECK(read(source, part, 0, std::ssize(bytes)) == bytes);
    }
    for (int i = 0; i < 20; ++i) {
      const auto& [part, bytes] = *std::next(whole.parts.begin(), random() % whole.parts.size());
      const int64_t first = random() % (bytes.size() + 1), left = std::ssize(bytes) - first;
      const int64_t count = std::min<int64_t>(left, random() % 5000);
      CAPTURE(part);
      CAPTURE(first);
      CHECK(read(source, part, first, count) == slice(bytes, first, count));
    }
  }
}

TEST_CASE("a weight that is stored as (in, out) is quantized as (out, in)") {
  for (const FourBitWeight& weight : weights()) {
    Whole whole(weight);
    std::vector<float> stored(whole.values.size());
    for (int64_t o = 0; o < weight.out; ++o)
      for (int64_t i = 0; i < weight.in; ++i)
        stored[static_cast<size_t>(i * weight.out + o)] =
            whole.values[static_cast<size_t>(o * weight.in + i)];
    whole.values = stored;
    QuantizingSource source = whole.source(true);
    for (const auto& [part, bytes] : whole.parts) {
      const int64_t first = std::ssize(bytes) / 3;
      CHECK(read(source, part, first, std::ssize(bytes) - first) ==
            slice(bytes, first, std::ssize(bytes) - first));
    }
  }
}

TEST_CASE("a range reads only its blocks, and all parts in order read every value once") {
  for (const bool nested : {false, true}) {
    Whole whole({.format = {.nested = nested}, .out = 100, .in = 640});
    QuantizingSource source = whole.source();
    read(source, "", 100, 30);  // bytes of blocks 3 and 4
    CHECK(whole.values_read == 2 * 64);
    whole.values_read = 0;
    QuantizingSource in_order = whole.source();
    for (const QuantizedPart part : parts_of(whole.weight.format)) {
      const std::string suffix = suffix_of(part);
      const int64_t size = std::ssize(whole.parts[suffix]), half = size / 2;
      read(in_order, suffix, 0, half);
      read(in_order, suffix, half, size - half);
    }
    CHECK(whole.values_read == whole.weight.elements());
  }
}

TEST_CASE("the absmax of a range of blocks reads only these blocks") {
  Whole whole({.format = {}, .out = 100, .in = 640});
  QuantizingSource source = whole.source();
  CHECK(read(source, ".absmax", 40, 20) == slice(whole.parts[".absmax"], 40, 20));
  CHECK(whole.values_read == 5 * 64);
}

TEST_CASE("a value that is not finite is an error that names the weight and its place") {
  Whole whole({.format = {}, .out = 10, .in = 64});
  whole.values[3 * 64 + 7] = std::numeric_limits<float>::quiet_NaN();
  QuantizingSource source = whole.source();
  CHECK(test::error_of([&] { read(source, "", 0, 320); }) ==
        "layer.weight: row 3, column 7 of its 10 x 64 matrix is nan, must be finite to be quantized");
  CHECK(test::error_of([&] { read(source, "", 0, 64); }) == "");
}

TEST_CASE("a range outside a part, and a part that the weight lacks, are errors") {
  Whole whole({.format = {}, .out = 2, .in = 64});
  QuantizingSource source = whole.source();
  CHECK(test::error_of([&] { read(source, ".absmax", 4, 8); }) ==
        "layer.weight.absmax: 8 bytes from 4 exceed its 8");
  CHECK(test::error_of([&] { read(source, ".nested_absmax", 0, 4); }) ==
        "layer.weight.nested_absmax: not a part of a quantized weight");
}
