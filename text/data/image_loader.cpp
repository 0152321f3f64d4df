#include "text/data/image_loader.h"

#include <algorithm>
#include <exception>
#include <span>

#include "runtime/check.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

constexpr int kMostThreads = 8;

bool are_same(const LaneImage& a, const LaneImage& b) {
  return a.file == b.file && a.image.extent == b.image.extent;
}

void load_image(const LaneImage& lane_image, float* patches, int32_t* positions, int64_t patches_of_lane) {
  const TokenFile& file = *lane_image.file;
  const TokenImage& image = lane_image.image;
  const ImageRules& rules = file.image_input().rules;
  const ImageLayout layout = layout_of(lane_image);
  const std::string bytes = file.images()->read(image);
  const Transparency transparency = transparency_of(rules.family, image.facts.is_object);
  try {
    write_patches(rules, layout, decoded(std::as_bytes(std::span(bytes)), transparency), patches, positions,
                  patches_of_lane);
  } catch (const Error& error) {
    throw Error(str(file.images()->name_of(image), ": ", error.what()), error.where);
  }
}

}  // namespace

ImageLayout layout_of(const LaneImage& lane_image) {
  const TokenFile& file = *lane_image.file;
  const ImageExtent& extent = lane_image.image.extent;
  ImageLayout layout = layout_of(file.image_input().rules, lane_image.image.facts.size);
  check(std::ssize(layout.frames) == extent.frames && layout.patches == extent.patches &&
            layout.tokens == extent.tokens,
        file.path(), ": is damaged: an image of ", layout.image.width, " x ", layout.image.height,
        " pixels has ", layout.patches, " patches, not ", extent.patches);
  return layout;
}

struct ImageLoader::Load {
  explicit Load(std::vector<LaneImage> of) : images(std::move(of)), errors(images.size()) {
    int64_t patch_count = 0, value_count = 0;
    for (const LaneImage& image : images) {
      values_at.push_back(value_count);
      patches_at.push_back(patch_count);
      patch_count += image.image.extent.patches;
      value_count += image.image.extent.patches * image.file->image_input().rules.patch_width();
    }
    values_at.push_back(value_count);
    patches_at.push_back(patch_count);
  }
  // Allocates buffers for images that are loaded ahead.
  void allocate() {
    own_patches.resize(static_cast<size_t>(values_at.back()));
    own_positions.resize(
        static_cast<size_t>(patches_at.back() * images.front().file->image_input().rules.axes()));
    patches = own_patches.data();
    positions = own_positions.data();
  }
  bool is_of(const std::vector<LaneImage>& wanted) const {
    return std::equal(images.begin(), images.end(), wanted.begin(), wanted.end(), are_same);
  }

  std::vector<LaneImage> images;
  std::vector<int64_t> values_at, patches_at;  // start offset of each image, and the end
  float* patches = nullptr;
  int32_t* positions = nullptr;
  std::vector<float> own_patches;
  std::vector<int32_t> own_positions;
  size_t begun = 0, done = 0;  // numbers of images; guarded by the loader's mutex
  std::vector<std::exception_ptr> errors;
};

ImageLoader::~ImageLoader() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    queue_.clear();
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ImageLoader::start() {
  const int count = std::clamp(usable_processors(), 1, kMostThreads);
  while (std::ssize(threads_) < count) threads_.emplace_back([this] { work(); });
}

void ImageLoader::work() {
  use_one_thread_here();
  std::unique_lock lock(mutex_);
  for (;;) {
    has_work_.wait(lock, [this] { return ends_ || !queue_.empty(); });
    if (ends_) return;
    const std::shared_ptr<Load> load = queue_.front();
    run_one(*load, lock);
  }
}

// Loads the next image that no thread has begun, without holding the lock.
void ImageLoader::run_one(Load& load, std::unique_lock<std::mutex>& lock) {
  const size_t i = load.begun++;
  if (load.begun == load.images.size())
    std::erase_if(queue_, [&](const auto& queued) { return queued.get() == &load; });
  lock.unlock();
  std::exception_ptr error;
  try {
    load_image(load.images[i], load.patches + load.values_at[i], load.positions + load.patches_at[i],
               load.patches_at.back());
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  load.errors[i] = error;
  if (++load.done == load.images.size()) image_done_.notify_all();
}

void ImageLoader::expect(int64_t lane, std::vector<LaneImage> images) {
  if (images.empty()) return;
  const auto load = std::make_shared<Load>(std::move(images));
  load->allocate();
  const std::lock_guard lock(mutex_);
  start();
  expected_[lane] = load;
  queue_.push_back(load);
  has_work_.notify_all();
}

void ImageLoader::load(int64_t lane, std::vector<LaneImage> images, float* patches, int32_t* positions) {
  std::shared_ptr<Load> load;
  std::unique_lock lock(mutex_);
  if (const auto found = expected_.find(lane); found != expected_.end()) {
    load = std::move(found->second);
    expected_.erase(found);
    if (!load->is_of(images)) {
      std::erase(queue_, load);
      load.reset();
    }
  }
  if (images.empty()) return;
  const bool expected = load != nullptr;
  if (!expected) {
    load = std::make_shared<Load>(std::move(images));
    load->patches = patches;
    load->positions = positions;
    queue_.push_front(load);
    has_work_.notify_all();
  }
  while (load->begun < load->images.size()) run_one(*load, lock);
  image_done_.wait(lock, [&] { return load->done == load->images.size(); });
  lock.unlock();
  for (const std::exception_ptr& error : load->errors)
    if (error) std::rethrow_exception(error);
  if (!expected) return;
  std::copy(load->own_patches.begin(), load->own_patches.end(), patches);
  std::copy(load->own_positions.begin(), load->own_positions.end(), positions);
}

}  // namespace flatshard
