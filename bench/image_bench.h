#pragma once
// Times reading a picture for a model: decoding its file, and resizing it and cutting it into patches.

#include <string>
#include <vector>

#include "bench/measure.h"
#include "text/images/image_rules.h"

namespace flatshard::bench {

// One line of the table.
struct ImageTime {
  std::string work;  // "decode", "cut", "both"
  int threads = 1;   // each thread reads its own image
  Spread seconds;    // seconds per image
};
struct ImageResult {
  ImageLayout layout;
  std::vector<ImageTime> times;
};

// Measures the picture in the file, as it is read by the model in the folder.
ImageResult measure_image(const std::string& picture, const std::string& folder, double seconds);
std::string image_table(const std::string& picture, const ImageResult& result);

}  // namespace flatshard::bench
