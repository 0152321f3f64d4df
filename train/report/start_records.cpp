#include "train/report/start_records.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/json_reader.h"
#include "runtime/log.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/report/html.h"

namespace flatshard {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostBytes = 16 << 20;
constexpr size_t kMostHosts = 1 << 16;
constexpr double kLatest = 1e11;  // seconds since 1970, in the year 5138

// Counts equal neighbours: "2 x 8 threads, 4 threads".
std::string counted_runs(const std::vector<std::string>& texts) {
  std::string all;
  for (auto begin = texts.begin(); begin != texts.end();) {
    const auto end = std::find_if(begin, texts.end(), [&](const auto& text) { return text != *begin; });
    const std::string many = end - begin > 1 ? str(end - begin, " x ") : "";
    all += str(all.empty() ? "" : ", ", many, *begin);
    begin = end;
  }
  return all;
}

std::string devices_of(const std::vector<RankDevice>& ranks) {
  std::set<std::string> seen;
  std::vector<std::string> gpus, threads;
  for (const RankDevice& rank : ranks)
    if (rank.gpu.empty())
      threads.push_back(counted(rank.threads, "thread"));
    else if (seen.insert(rank.gpu).second)
      gpus.push_back(rank.name);
  return threads.empty() ? counted_runs(gpus) : str(ranks.front().name, ", ", counted_runs(threads));
}

std::string line_of(const StartRecord& start) {
  Json hosts = Json::array();
  for (const StartHost& host : start.hosts)
    hosts.push_back({{"name", host.name}, {"ranks", host.ranks}, {"devices", host.devices}});
  return json_text(Json{{"step", start.step},
                        {"time", start.time},
                        {"version", start.version},
                        {"command", start.command},
                        {"ranks", start.ranks},
                        {"hosts", hosts}},
                   kOneLine, InvalidUtf8::replaced) +
         '\n';
}

StartRecord parse_start(const std::string& line, const std::string& where) {
  const OrderedJsonReader in(where, checked_json<Json>(line, where));
  const auto count = [](const OrderedJsonReader& of) { return of.whole("ranks", 0, INT64_MAX); };
  StartRecord start{.step = in.whole("step", 0, INT64_MAX),
                    .time = in.number("time"),
                    .version = in.text("version"),
                    .command = in.text("command"),
                    .ranks = count(in)};
  in.must(start.time >= 0 && start.time <= kLatest, "time", "in seconds since 1970");
  for (const OrderedJsonReader& host : in.objects("hosts", kMostHosts))
    start.hosts.push_back({host.text("name"), count(host), host.text("devices")});
  return start;
}

}  // namespace

std::vector<StartHost> hosts_of(const std::vector<RankDevice>& ranks) {
  std::vector<std::pair<std::string, std::vector<RankDevice>>> hosts;
  for (const RankDevice& rank : ranks) {
    auto host = std::find_if(hosts.begin(), hosts.end(), [&](const auto& h) { return h.first == rank.host; });
    if (host == hosts.end()) host = hosts.insert(host, {rank.host, {}});
    host->second.push_back(rank);
  }
  std::vector<StartHost> all;
  for (const auto& [name, of_host] : hosts) all.push_back({name, std::ssize(of_host), devices_of(of_host)});
  return all;
}

std::string lines_of(const std::vector<StartRecord>& starts) {
  std::string lines;
  for (const StartRecord& start : starts) lines += line_of(start);
  return lines;
}

std::vector<StartRecord> read_starts(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  const std::string text = read_whole_file(path, kMostBytes);
  std::vector<StartRecord> starts;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    starts.push_back(parse_start(text.substr(begin, end - begin), str(path, ':', starts.size() + 1)));
  return starts;
}

std::vector<StartRecord> starts_before(int64_t step, const std::string& path) {
  std::vector<StartRecord> starts;
  warn_on_error([&] { starts = read_starts(path); });
  std::erase_if(starts, [&](const StartRecord& start) { return start.step >= step; });
  return starts;
}

std::string describe_hosts(const std::vector<StartHost>& hosts) {
  const bool are_equal = std::all_of(hosts.begin(), hosts.end(), [&](const StartHost& host) {
    return host.ranks == hosts.front().ranks && host.devices == hosts.front().devices;
  });
  if (hosts.size() > 1 && are_equal)
    return str(counted(std::ssize(hosts), "host"), ", each ", hosts.front().devices);
  std::string text;
  for (const StartHost& host : hosts) text += str(text.empty() ? "" : "; ", host.name, ": ", host.devices);
  return text;
}

std::string starts_html(const std::vector<StartRecord>& starts) {
  if (starts.empty()) return "";
  std::string rows;
  for (const StartRecord& start : starts) {
    rows += str("<tr><th scope=\"row\">after step ", with_commas(start.step), "<div class=\"note\">",
                utc(start.time), " UTC</div></th><td><code>", escaped(start.command), "</code>");
    for (const StartHost& host : start.hosts)
      rows += str("<div class=\"note\">", escaped(host.name), ": ", counted(host.ranks, "rank"), " on ",
                  escaped(host.devices), "</div>");
    rows += str("<div class=\"note\">version ", escaped(start.version), "</div></td></tr>\n");
  }
  return str("<table class=\"starts\"><tbody>\n", rows, "</tbody></table>\n");
}

}  // namespace flatshard
