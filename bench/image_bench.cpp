#include "bench/image_bench.h"

#include <functional>
#include <iomanip>
#include <optional>
#include <span>
#include <sstream>

#include "runtime/parallel.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "text/images/image_file.h"
#include "text/images/image_input.h"

namespace flatshard::bench {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr int64_t kImagesOfThread = 4;  // number of images per thread in a sample

}  // namespace

ImageResult measure_image(const std::string& picture, const std::string& folder, double seconds) {
  const std::string file = read_whole_file(picture, kMostBytes);
  const std::optional<ImageInput> input = read_image_input(folder);
  check(input.has_value(), folder, ": the model reads no images");
  const ImageRules& rules = input->rules;
  const auto decode = [&] { return decoded(std::as_bytes(std::span(file))); };
  const Image image = decode();
  const ImageLayout layout = layout_of(rules, {image.width, image.height});
  const auto cut = [&](const Image& of) {
    std::vector<float> patches(static_cast<size_t>(layout.patches * rules.patch_width()));
    std::vector<int32_t> positions(static_cast<size_t>(layout.patches * rules.axes()));
    write_patches(rules, layout, of, patches.data(), positions.data(), layout.patches);
  };
  ImageResult result{.layout = layout, .times = {}};
  const int all_threads = thread_count();
  const auto add_line = [&](const char* work, int threads, const std::function<void()>& run) {
    set_thread_count(threads);
    const int64_t images = threads * kImagesOfThread;
    const Spread all = spread(samples_of(seconds, [&] { parallel_for(images, [&](int64_t) { run(); }); }));
    const double each = static_cast<double>(images);
    result.times.push_back({work, threads, {all.median / each, all.p10 / each, all.p90 / each}});
  };
  add_line("decode", 1, [&] { decode(); });
  add_line("cut", 1, [&] { cut(image); });
  add_line("both", 1, [&] { cut(decode()); });
  if (all_threads > 1) add_line("both", all_threads, [&] { cut(decode()); });
  set_thread_count(all_threads);
  return result;
}

std::string image_table(const std::string& picture, const ImageResult& r) {
  std::ostringstream out;
  out << std::fixed << picture << ", " << r.layout.image.width << " x " << r.layout.image.height << ": "
      << counted(std::ssize(r.layout.frames), "frame") << ", " << with_commas(r.layout.patches) << " patches"
      << ", " << counted(r.layout.tokens, "token") << '\n'
      << "work    threads   ms/image  p10..p90           images/s\n";
  for (const ImageTime& time : r.times)
    out << std::left << std::setw(8) << time.work << std::right << std::setw(7) << time.threads
        << std::setprecision(2) << std::setw(11) << 1e3 * time.seconds.median << std::setw(9)
        << 1e3 * time.seconds.p10 << ".." << std::left << std::setw(11) << 1e3 * time.seconds.p90
        << std::right << std::setprecision(1) << std::setw(7) << 1 / time.seconds.median << '\n';
  return std::move(out).str();
}

}  // namespace flatshard::bench
