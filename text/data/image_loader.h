#pragma once
// Loads the images of lanes: reads their files, decodes them and cuts them into patches. A few threads do so
// for the lanes that are expected next, while the step computes. What is loaded depends on the images alone,
// not on what was expected. Threads start with the first image that is expected.

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
  const TokenFile* file = nullptr;  // which has images
  TokenImage image;
  int64_t at = 0;  // where its tokens begin in the lane
};

// How its model sees it. An Error if the token file says otherwise.
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
  // record; of several it is the first one's.
  void load(int64_t lane, std::vector<LaneImage> images, float* patches, int32_t* positions);

 private:
  struct Load;
  void start();
  void work();
  void run_one(Load& load, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;  // guards what follows
  std::condition_variable has_work_, image_done_;
  std::deque<std::shared_ptr<Load>> queue_;            // those with an image that nobody has begun
  std::map<int64_t, std::shared_ptr<Load>> expected_;  // by lane
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace flatshard
