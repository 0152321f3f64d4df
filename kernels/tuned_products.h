#pragma once
// The fastest of cuBLASLt's algorithms for the products of a run, found by timing them instead of by
// cuBLASLt's heuristics. Timings differ from run to run, and sums of different algorithms differ in their
// last bits, so the algorithms are kept in a file; runs that read the same file are reproducible. The file
// has a line for each product, with five fields separated by tabs:
//
//   device   library   product   algorithm   microseconds
//
// A line counts only on the device and with the version of cuBLASLt that it names, and for products of the
// same shapes, dtypes and alignments.

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "runtime/stream.h"

namespace flatshard {

class TunedProducts {
 public:
  using Algorithm = std::array<uint64_t, 8>;  // serialized by cuBLASLt

  TunedProducts() = default;
  // Reads the text of a file for a device and a library. Throws an Error that names the malformed line of
  // `path`.
  TunedProducts(std::string device, std::string library, const std::string& text, const std::string& path);

  const Algorithm* find(const std::string& product) const;  // null if not timed with here_
  void add(const std::string& product, const Algorithm& algorithm, double microseconds);

  std::string text() const;  // text of the file, including the lines of other devices and libraries
  int64_t size() const;      // number of products timed with this device and library
  // A name for the algorithms of this device and library, eight digits of a hash; "" if there are none.
  std::string name() const;

 private:
  struct Choice {
    Algorithm algorithm;
    std::string microseconds;
  };
  std::string here_;                       // device and library
  std::map<std::string, Choice> choices_;  // keyed by device, library and product
};

// Times, on a stream, the algorithms of the products that planning streams on its GPU have planned and that
// the file lacks; returns the new text of the file. Takes device memory for the largest product.
std::string tune_products(Stream& stream, const std::string& text, const std::string& path);
// Forgets the products planned so far, for plans that do not belong to the run.
void forget_planned_products();

// Makes later products on this GPU use the algorithms in this text of a file, if it has them. Returns the
// name of the set; "" if the file has none for this device.
std::string use_tuned_products(Device device, const std::string& text, const std::string& path);

namespace cuda {
TunedProducts tuned_products_of(Device device, const std::string& text, const std::string& path);
void tune_products(Stream& stream, TunedProducts& tuned);
void forget_planned_products();
void use_tuned_products(TunedProducts tuned);
}  // namespace cuda

}  // namespace flatshard
