#pragma once
// The fastest of cuBLASLt's algorithms for the products of a run, found by timing them, instead of the one
// that its heuristics prefer. Timings differ from run to run, and sums of different algorithms differ in
// their last bits, so the algorithms are kept in a file; a run is reproducible as long as it reads the same
// one. The file has a line for each product, with five fields separated by tabs:
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
  using Algorithm = std::array<uint64_t, 8>;  // as cuBLASLt serializes it

  TunedProducts() = default;
  // The text of a file, as used with a device and a library. An Error names the line of `path` that is
  // malformed.
  TunedProducts(std::string device, std::string library, const std::string& text, const std::string& path);

  const Algorithm* find(const std::string& product) const;  // null if it was not timed here
  void add(const std::string& product, const Algorithm& algorithm, double microseconds);

  std::string text() const;  // of the file, with the lines of other devices and libraries
  int64_t size() const;      // of the products timed here
  // A name for the algorithms used here, eight digits of a hash; "" if there are none.
  std::string name() const;

 private:
  struct Choice {
    Algorithm algorithm;
    std::string microseconds;
  };
  std::string here_;                       // device and library
  std::map<std::string, Choice> choices_;  // by all three keys
};

// Times, on a stream, the algorithms of the products that planning streams on its GPU have been given, as far
// as the file lacks them, and returns its new text. Takes device memory for the largest product.
std::string tune_products(Stream& stream, const std::string& text, const std::string& path);
// Products planned so far are no part of a run, and need not be timed for it.
void forget_planned_products();

// From now on products on this GPU run by the algorithms in this text of a file, where it has them. Returns
// the name of the set, "" if there is nothing for this device.
std::string use_tuned_products(Device device, const std::string& text, const std::string& path);

namespace cuda {
TunedProducts tuned_products_of(Device device, const std::string& text, const std::string& path);
void tune_products(Stream& stream, TunedProducts& tuned);
void forget_planned_products();
void use_tuned_products(TunedProducts tuned);
}  // namespace cuda

}  // namespace flatshard
