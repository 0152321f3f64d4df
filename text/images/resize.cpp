#include "text/images/resize.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr int kWeightBits = 22;
constexpr int kChannels = 3;

double bilinear(double x) { return std::max(0.0, 1 - std::abs(x)); }

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) { return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0; }

struct Kernel {
  double (*value)(double);
  double support;  // the filter is 0 farther from 0
};

constexpr Kernel kKernels[] = {{bilinear, 1}, {bicubic, 2}, {lanczos, 3}};  // by ResizeFilter

// The inputs of an output pixel, or row of pixels: the sum of input[first + i] * weights[i] for all i.
struct Taps {
  int64_t first;
  std::vector<int32_t> weights;
};

int32_t rounded(double weight) {
  return static_cast<int32_t>(weight * (1 << kWeightBits) + (weight < 0 ? -0.5 : 0.5));
}

Taps taps_of(int64_t x, int64_t in_size, int64_t out_size, const Kernel& kernel) {
  const double scale = static_cast<double>(in_size) / static_cast<double>(out_size);
  const double stretch = std::max(scale, 1.0);
  const double center = (static_cast<double>(x) + 0.5) * scale, support = kernel.support * stretch;
  const int64_t first = std::max<int64_t>(0, static_cast<int64_t>(center - support + 0.5));
  const int64_t end = std::min(in_size, static_cast<int64_t>(center + support + 0.5));
  std::vector<double> values;
  double sum = 0;
  for (int64_t j = first; j < end; ++j) {
    values.push_back(kernel.value((static_cast<double>(j) - center + 0.5) * (1 / stretch)));
    sum += values.back();
  }
  Taps taps{first, {}};
  for (const double value : values) taps.weights.push_back(rounded(sum == 0 ? value : value / sum));
  return taps;
}

uint8_t to_byte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255)); }

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

// Rows that the horizontal pass computes together, so that the compiler can use vectors.
constexpr int64_t kRows = 16;
constexpr int64_t kValues = kRows * kChannels;

// Reads column x of `rows` rows from y on: its pixels one below the other.
void read_column(const Image& image, int64_t x, int64_t y, int64_t rows, uint8_t* column) {
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(image.rgb.data() + ((y + r) * image.width + x) * kChannels, kChannels,
                column + r * kChannels);
}

void write_column(const uint8_t* column, int64_t x, int64_t y, int64_t rows, Image& image) {
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(column + r * kChannels, kChannels,
                image.rgb.data() + ((y + r) * image.width + x) * kChannels);
}

void sum_columns(const uint8_t* columns, const Taps& taps, uint8_t* out) {
  int32_t sums[kValues];
  std::fill_n(sums, kValues, kHalf);
  const uint8_t* in = columns + taps.first * kValues;
  for (const int32_t weight : taps.weights) {
    for (int64_t i = 0; i < kValues; ++i) sums[i] += in[i] * weight;
    in += kValues;
  }
  std::transform(sums, sums + kValues, out, to_byte);
}

Image with_width(const Image& image, int64_t width, const Kernel& kernel) {
  Image result{width, image.height,
               std::vector<uint8_t>(static_cast<size_t>(width * image.height) * kChannels)};
  std::vector<Taps> taps;
  for (int64_t x = 0; x < width; ++x) taps.push_back(taps_of(x, image.width, width, kernel));
  std::vector<uint8_t> columns(static_cast<size_t>(image.width * kValues));
  uint8_t sums[kValues];
  for (int64_t y = 0; y < image.height; y += kRows) {
    const int64_t rows = std::min(kRows, image.height - y);
    for (int64_t x = 0; x < image.width; ++x) read_column(image, x, y, rows, columns.data() + x * kValues);
    for (int64_t x = 0; x < width; ++x) {
      sum_columns(columns.data(), taps[static_cast<size_t>(x)], sums);
      write_column(sums, x, y, rows, result);
    }
  }
  return result;
}

Image with_height(const Image& image, int64_t height, const Kernel& kernel) {
  const int64_t stride = image.width * kChannels;
  Image result{image.width, height, std::vector<uint8_t>(static_cast<size_t>(height * stride))};
  std::vector<int32_t> sums(static_cast<size_t>(stride));
  for (int64_t y = 0; y < height; ++y) {
    const Taps taps = taps_of(y, image.height, height, kernel);
    std::fill(sums.begin(), sums.end(), kHalf);
    const uint8_t* in = image.rgb.data() + taps.first * stride;
    for (const int32_t weight : taps.weights) {
      for (int64_t i = 0; i < stride; ++i) sums[static_cast<size_t>(i)] += in[i] * weight;
      in += stride;
    }
    std::transform(sums.begin(), sums.end(), result.rgb.begin() + y * stride, to_byte);
  }
  return result;
}

}  // namespace

Image resized(const Image& image, int64_t width, int64_t height, ResizeFilter filter) {
  for (const int64_t side : {image.width, image.height, width, height})
    check(side >= 1 && side <= kMaxImageSide, "an image of ", image.width, " x ", image.height,
          " cannot become one of ", width, " x ", height, ": sides must be 1 to ", kMaxImageSide);
  const Kernel& kernel = kKernels[static_cast<size_t>(filter)];
  const auto widen = [&](Image from) { return width == from.width ? from : with_width(from, width, kernel); };
  const auto heighten = [&](Image from) {
    return height == from.height ? from : with_height(from, height, kernel);
  };
  const int64_t rows_lost = image.height - height, columns_lost = image.width - width;
  const bool height_first = rows_lost > 0 && rows_lost > 2 * columns_lost;
  return height_first ? widen(heighten(image)) : heighten(widen(image));
}

}  // namespace flatshard
