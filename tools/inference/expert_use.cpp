#include "tools/inference/expert_use.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <numeric>
#include <sstream>
#include <utility>

#include "runtime/check.h"
#include "runtime/rng.h"
#include "train/report/metrics.h"

namespace flatshard {
namespace {

double total(std::span<const int64_t> counts) {
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
}

// The mutual information of rows and columns, in bits.
double information(const std::map<int32_t, std::vector<int64_t>>& counts, std::span<const int64_t> loads) {
  const double all = total(loads);
  double bits = 0;
  for (const auto& [token, of_experts] : counts) {
    const double row = total(of_experts);
    for (size_t e = 0; e < loads.size(); ++e)
      if (const auto n = static_cast<double>(of_experts[e]); n > 0)
        bits += n / all * std::log2(n * all / row / static_cast<double>(loads[e]));
  }
  return bits;
}

// The rows of a pass in another order.
std::vector<size_t> shuffled_rows(size_t count, int64_t pass) {
  std::vector<size_t> rows(count);
  std::iota(rows.begin(), rows.end(), size_t{0});
  const RandomStream random(0, "shuffled experts", static_cast<uint64_t>(pass));
  for (size_t i = count; i > 1; --i) {
    const double unit = random.uniform(static_cast<int64_t>(i));
    std::swap(rows[i - 1], rows[std::min(i - 1, static_cast<size_t>(unit * static_cast<double>(i)))]);
  }
  return rows;
}

// From white, no load, to dark, four times the mean and more.
std::string shade(double load) {
  const auto level = static_cast<int>(255 * (1 - std::min(load / 4, 1.0)));
  return str("rgb(", level, ',', level, ",255)");
}

}  // namespace

ExpertUse::ExpertUse(const ModelConfig& config)
    : experts_(config.experts), per_token_(config.experts_per_token) {
  for (int64_t block = 0; block < config.layers; ++block)
    if (config.has_experts(block)) blocks_.push_back({.index = block});
}

void ExpertUse::add(std::span<const int32_t> tokens, const Tensor& choices, int64_t pass) {
  const std::vector<size_t> others = shuffled_rows(tokens.size(), pass);
  const int64_t rows = choices.shape[1];
  const auto* const all = choices.as<int32_t>();
  const auto count = [&](Counts& counts, int32_t token, const int32_t* chosen) {
    std::vector<int64_t>& of_experts = counts[token];
    of_experts.resize(static_cast<size_t>(experts_));
    for (int64_t j = 0; j < per_token_; ++j) ++of_experts[static_cast<size_t>(chosen[j])];
  };
  for (Block& block : blocks_)
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto chosen = [&](size_t row) {
        return all + (block.index * rows + static_cast<int64_t>(row)) * per_token_;
      };
      count(block.own, tokens[i], chosen(i));
      count(block.shuffled, tokens[i], chosen(others[i]));
    }
  tokens_ += std::ssize(tokens);
}

std::string ExpertUse::text() const {
  std::ostringstream out;
  out << tokens_ << '\n';
  for (size_t b = 0; b < blocks_.size(); ++b)
    for (const bool own : {true, false})
      for (const auto& [token, of_experts] : own ? blocks_[b].own : blocks_[b].shuffled)
        for (size_t e = 0; e < of_experts.size(); ++e)
          if (of_experts[e] > 0)
            out << b << ' ' << own << ' ' << token << ' ' << e << ' ' << of_experts[e] << '\n';
  return std::move(out).str();
}

void ExpertUse::add(const std::string& text) {
  std::istringstream in(text);
  int64_t more = 0, count = 0;
  in >> more;
  tokens_ += more;
  size_t block = 0, expert = 0;
  bool own = false;
  for (int32_t token = 0; in >> block >> own >> token >> expert >> count;) {
    std::vector<int64_t>& of_experts = (own ? blocks_.at(block).own : blocks_.at(block).shuffled)[token];
    of_experts.resize(static_cast<size_t>(experts_));
    of_experts.at(expert) += count;
  }
}

std::vector<int64_t> ExpertUse::loads(const Block& block) const {
  std::vector<int64_t> sums(static_cast<size_t>(experts_));
  for (const auto& [token, of_experts] : block.own)
    for (size_t e = 0; e < sums.size(); ++e) sums[e] += of_experts[e];
  return sums;
}

std::string ExpertUse::table() const {
  std::ostringstream out;
  out << std::fixed << "block  max load  entropy  unused  information  shuffled\n";
  double sums[5] = {};
  const auto line = [&](const std::string& name, const double(&v)[5], int digits) {
    out << std::setw(5) << name << std::setprecision(2) << std::setw(10) << v[0] << std::setprecision(3)
        << std::setw(9) << v[1] << std::setprecision(digits) << std::setw(8) << v[2] << std::setprecision(3)
        << std::setw(13) << v[3] << std::setw(10) << v[4] << '\n';
  };
  for (const Block& block : blocks_) {
    const std::vector<int64_t> of_block = loads(block);
    const std::vector<double> counts(of_block.begin(), of_block.end());
    const auto of = expert_metrics(counts, experts_);  // max_load, entropy, unused
    const double values[5] = {of.at(0).value, of.at(1).value, of.at(2).value,
                              information(block.own, of_block), information(block.shuffled, of_block)};
    line(std::to_string(block.index), values, 0);
    for (size_t i = 0; i < std::size(sums); ++i) sums[i] += values[i] / static_cast<double>(blocks_.size());
  }
  line("mean", sums, 1);
  return std::move(out).str();
}

std::string ExpertUse::picture() const {
  constexpr int64_t kSide = 12, kLeft = 40, kTop = 24;
  std::ostringstream out;
  const int64_t width = kLeft + experts_ * kSide + 8, height = kTop + std::ssize(blocks_) * kSide + 8;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width << "\" height=\"" << height
      << "\" font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" "
         "fill=\"white\"/>\n<text x=\""
      << kLeft
      << "\" y=\"16\">load of each expert, as a multiple of the mean: white 0, blue 4 and more</text>\n";
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const std::vector<int64_t> of_block = loads(blocks_[b]);
    const int64_t y = kTop + static_cast<int64_t>(b) * kSide;
    out << "<text x=\"4\" y=\"" << y + kSide - 2 << "\">" << blocks_[b].index << "</text>\n";
    for (size_t e = 0; e < of_block.size(); ++e) {
      const double load = static_cast<double>(of_block[e]) * static_cast<double>(experts_) / total(of_block);
      out << "<rect x=\"" << kLeft + static_cast<int64_t>(e) * kSide << "\" y=\"" << y << "\" width=\""
          << kSide - 1 << "\" height=\"" << kSide - 1 << "\" fill=\"" << shade(load) << "\"><title>block "
          << blocks_[b].index << ", expert " << e << ": " << std::setprecision(3) << load
          << "</title></rect>\n";
    }
  }
  out << "</svg>\n";
  return std::move(out).str();
}

}  // namespace flatshard
