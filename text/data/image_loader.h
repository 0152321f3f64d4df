#pragma once
// Loads the images of lanes: reads their files, decodes them and cuts them into patches. A few threads load
// the images of expected lanes while the step computes; they start with the first expected image. Results
// depend on the images alone, not on expectations.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "text/data/token_file.h"

namespace flatshard {

// An image of a lane, in the order of the lane's tokens.
struct LaneImage {
  const TokenFile* file = nullptr;  // a file with images
  TokenImage image;
  int64_t at = 0;  // position in the lane of its first token
};

// Computes how the model sees the image. Throws an Error if the token file contradicts it.
ImageLayout layout_of(const LaneImage& image);

class ImageLoader {
 public:
  ImageLoader() = default;
  ~ImageLoader();
  ImageLoader(const ImageLoader&) = delete;
  ImageLoader& operator=(const ImageLoader&) = delete;

  // Begins to load the images that the next load() of the lane is likely to want.
  void expect(int64_t lane, std::vector<LaneImage> images);
  // Writes the patches of all images and their positions (image_rules.h). An Error names the image and its
  // record; if several fail, it is the Error of the first one.
  void load(int64_t lane, std::vector<LaneImage> images, float* patches, int32_t* positions);

 private:
  struct Load;
  void start();
  void work();
  void run_one(Load& load, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;  // guards the members below
  std::condition_variable has_work_, image_done_;
  std::deque<std::shared_ptr<Load>> queue_;            // loads with images that no thread has begun
  std::map<int64_t, std::shared_ptr<Load>> expected_;  // keyed by lane
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace flatshard
