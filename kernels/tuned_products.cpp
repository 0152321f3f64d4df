#include "kernels/tuned_products.h"

#include <algorithm>
#include <charconv>
#include <iomanip>
#include <sstream>
#include <vector>

#include "build_config.h"
#include "runtime/check.h"
#include "runtime/sha256.h"

namespace flatshard {
namespace {

constexpr size_t kDigits = 16;  // hexadecimal digits of a word
constexpr char kSeparator = '\t';

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, kSeparator);) fields.push_back(field);
  return fields;
}

std::string hex(const TunedProducts::Algorithm& algorithm) {
  std::ostringstream out;
  out << std::hex << std::setfill('0');
  for (const uint64_t word : algorithm) out << std::setw(kDigits) << word;
  return std::move(out).str();
}

bool parse(const std::string& text, TunedProducts::Algorithm& algorithm) {
  if (text.size() != kDigits * algorithm.size()) return false;
  for (size_t i = 0; i < algorithm.size(); ++i) {
    const char* const begin = text.data() + kDigits * i;
    const auto [end, error] = std::from_chars(begin, begin + kDigits, algorithm[i], 16);
    if (error != std::errc() || end != begin + kDigits) return false;
  }
  return true;
}

bool is_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

TunedProducts::TunedProducts(std::string device, std::string library, const std::string& text,
                             const std::string& path)
    : here_(std::move(device) + kSeparator + std::move(library) + kSeparator) {
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::vector<std::string> fields = fields_of(line);
    Choice choice{};
    check(
        fields.size() == 5 && parse(fields[3], choice.algorithm) && is_number(fields[4]), path, ':', number,
        ": must be device, library, product, algorithm of 128 hexadecimal digits and microseconds, separated "
        "by tabs: remove the line, or the file, to time its products again");
    choice.microseconds = fields[4];
    choices_[fields[0] + kSeparator + fields[1] + kSeparator + fields[2]] = std::move(choice);
  }
}

const TunedProducts::Algorithm* TunedProducts::find(const std::string& product) const {
  const auto found = choices_.find(here_ + product);
  return found == choices_.end() ? nullptr : &found->second.algorithm;
}

void TunedProducts::add(const std::string& product, const Algorithm& algorithm, double microseconds) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << microseconds;
  choices_[here_ + product] = {algorithm, std::move(text).str()};
}

std::string TunedProducts::text() const {
  std::string text;
  for (const auto& [product, choice] : choices_)
    text += product + kSeparator + hex(choice.algorithm) + kSeparator + choice.microseconds + '\n';
  return text;
}

int64_t TunedProducts::size() const {
  return std::count_if(choices_.begin(), choices_.end(),
                       [&](const auto& choice) { return choice.first.starts_with(here_); });
}

std::string TunedProducts::name() const {
  if (size() == 0) return "";
  Sha256 sha;
  for (const auto& [product, choice] : choices_)
    if (product.starts_with(here_)) {
      const std::string line = product + kSeparator + hex(choice.algorithm);
      sha.add(line.data(), line.size());
    }
  return sha.hex().substr(0, 8);
}

std::string tune_products([[maybe_unused]] Stream& stream, const std::string& text,
                          [[maybe_unused]] const std::string& path) {
  if constexpr (kCublasBuilt)
    if (stream.device().is_cuda()) {
      TunedProducts tuned = cuda::tuned_products_of(stream.device(), text, path);
      cuda::tune_products(stream, tuned);
      return tuned.text();
    }
  return text;
}

void forget_planned_products() {
  if constexpr (kCublasBuilt) cuda::forget_planned_products();
}

std::string use_tuned_products([[maybe_unused]] Device device, [[maybe_unused]] const std::string& text,
                               [[maybe_unused]] const std::string& path) {
  if constexpr (kCublasBuilt)
    if (device.is_cuda()) {
      TunedProducts tuned = cuda::tuned_products_of(device, text, path);
      const std::string name = tuned.name();
      cuda::use_tuned_products(std::move(tuned));
      return name;
    }
  return "";
}

}  // namespace flatshard
