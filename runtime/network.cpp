#include "runtime/network.h"

#include <arpa/inet.h>
#include <filesystem>
#include <fstream>
#include <ifaddrs.h>
#include <map>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>

#include "runtime/check.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// An IP address as text, such as "10.0.0.1"; "" for a link-local IPv6 address and for other kinds of
// addresses.
std::string address_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&six)) inet_ntop(AF_INET6, &six, text, sizeof text);
  }
  return text;
}

// The speed of an interface as text, such as " (25 Gb/s)"; "" if the driver does not report it.
std::string speed_of(const std::string& name) {
  const double megabits = std::atof(first_line("/sys/class/net/" + name + "/speed").c_str());
  return megabits > 0 ? str(" (", megabits / 1000, " Gb/s)") : "";
}

}  // namespace

std::string network_interfaces() {
  std::map<std::string, std::string> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
    for (const ifaddrs* one = list; one; one = one->ifa_next) {
      if (!one->ifa_addr || (one->ifa_flags & IFF_LOOPBACK)) continue;
      const std::string name = one->ifa_name, address = address_of(one->ifa_addr);
      if (address.empty() || found.contains(name)) continue;
      found[name] = name + ' ' + address + ((one->ifa_flags & IFF_RUNNING) ? speed_of(name) : " (no link)");
    }
  }
  std::error_code none;
  for (const fs::directory_entry& device : fs::directory_iterator("/sys/class/infiniband", none))
    found[device.path().filename()] =
        device.path().filename().string() + ' ' + first_line(device.path() / "ports/1/rate");
  std::string text;
  for (const auto& [name, description] : found) text += (text.empty() ? "" : ", ") + description;
  return text.empty() ? "loopback only" : text;
}

}  // namespace flatshard
