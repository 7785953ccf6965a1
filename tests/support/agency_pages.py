# ruff: noqa: E501 - pages stand as they are
"""Pages for tests of frontend/seatmap and game/lightgrid: right ones made otherwise, and cheats."""

from __future__ import annotations

__all__ = ["DECEIVING", "LIGHTS", "MOUTH_ONLY", "SEATS", "greedy"]

# Every part is drawn anew with each change; colours and the banner fade; the replay's first move
# comes at once; what is kept is text of its own kind.
LIGHTS = """<!doctype html><html><head><title>Lights</title><link rel=icon href="data:,"><style>
body { background: linear-gradient(#223, #112); color: #eee; font: 16px sans-serif }
table { border-spacing: 4px; margin: auto }
td { padding: 0 }
.l { width: 58px; height: 58px; background: #20303c; transition: background .4s; text-align: center;
     line-height: 58px; cursor: pointer; color: #9ab }
.l[aria-pressed=true] { background: #ffb400; color: #000 }
#banner { opacity: 0; visibility: hidden; transition: opacity .5s, visibility .5s }
#banner.on { opacity: 1; visibility: visible }
</style></head><body>
<main></main><p>You made <output id="moves">0</output> moves</p>
<p><button id=undo>&larr;</button><button id=redo>&rarr;</button></p>
<h2 id=banner>All dark!</h2>
<script type="module">
let on = new Set(), first = new Set(), past = [], future = [], playing = false, over = false;
const key = (r, c) => r * 5 + c;
const flip = (set, k) => { set.has(k) ? set.delete(k) : set.add(k); };
const press = (set, k) => {
  const r = Math.floor(k / 5), c = k % 5;
  for (const [dr, dc] of [[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]]) {
    const y = r + dr, x = c + dc;
    if (0 <= y && y < 5 && 0 <= x && x < 5) flip(set, key(y, x));
  }
};
function render() {
  let html = '<table>';
  for (let r = 0; r < 5; r++) {
    html += '<tr>';
    for (let c = 0; c < 5; c++)
      html += `<td><div class=l role=button tabindex=0 data-cell="${r},${c}"
               aria-pressed="${on.has(key(r, c))}">${'abcde'[c]}${r}</div></td>`;
    html += '</tr>';
  }
  document.querySelector('main').innerHTML = html + '</table>';
  document.querySelector('#moves').value = past.length;
  document.querySelector('#banner').classList.toggle('on', over);
}
function move(k) {
  if (over) return;
  press(on, k); past.push(k); future = [];
  over = playing && on.size === 0;
  render();
}
document.addEventListener('click', e => {
  const cell = e.target.closest('[data-cell]');
  if (cell) { const [r, c] = cell.dataset.cell.split(',').map(Number); move(key(r, c)); }
});
const start = (set, scrambled) => {
  on = set; first = new Set(set); past = []; future = []; over = false; playing = scrambled; render();
};
const rows = set => [0, 1, 2, 3, 4].map(r => [0, 1, 2, 3, 4].map(c => set.has(key(r, c)) ? 1 : 0));
function shortest(set) {  // by trying the first row, then chasing
  let best = null;
  for (let guess = 0; guess < 32; guess++) {
    const left = new Set(set), moves = [];
    for (let k = 0; k < 25; k++) {
      const wanted = k < 5 ? guess >> k & 1 : left.has(k - 5);
      if (wanted) { press(left, k); moves.push(k); }
    }
    if (!left.size && (!best || moves.length < best.length)) best = moves;
  }
  return best;
}
const spot = k => ({ row: Math.floor(k / 5), col: k % 5 });
class Game {
  get size() { return 5; }
  init() { on = new Set(); render(); }
  state() { return rows(on); }
  set(values) { start(new Set(values.flat().flatMap((v, k) => v ? [k] : [])), false); }
  toggle(r, c) { move(key(r, c)); }
  moves() { return past.length; }
  scramble(seed) {
    let x = BigInt(seed) + 88172645463325252n;
    const set = new Set();
    do {
      for (let k = 0; k < 25; k++) {
        x ^= x << 13n & 0xffffffffffffffffn; x ^= x >> 7n; x ^= x << 17n & 0xffffffffffffffffn;
        if (x >> 20n & 1n) press(set, k);
      }
    } while (!set.size);
    start(set, true);
  }
  undo() {
    const k = past.pop();
    if (k === undefined) return;
    press(on, k); future.push(k); over = false; render();
  }
  redo() {
    const k = future.pop();
    if (k === undefined) return;
    press(on, k); past.push(k); over = playing && on.size === 0; render();
  }
  replay() {
    const again = past.slice();
    on = new Set(first); past = []; over = false; render();
    const next = () => {
      if (!again.length) { clearInterval(timer); return; }
      const k = again.shift();
      press(on, k); past.push(k); render();
    };
    const timer = setInterval(next, 220);
    setTimeout(next, 5);
  }
  hint() { const best = shortest(on); return best && best.length ? spot(best[0]) : null; }
  save() {
    localStorage.setItem('lights:v1', [playing, [...first].join('.'), past.join('.'),
                                       future.join('.')].join('|'));
  }
  load() {
    const text = localStorage.getItem('lights:v1') || '';
    if (!/^(true|false)(\\|(\\d+(\\.\\d+)*)?){3}$/.test(text)) return false;
    const [p, a, b, c] = text.split('|');
    const list = t => t ? t.split('.').map(Number) : [];
    playing = p === 'true'; first = new Set(list(a)); past = list(b); future = list(c);
    on = new Set(first); past.forEach(k => press(on, k)); over = playing && !on.size; render();
    return true;
  }
  exportLog() { return JSON.stringify(past.map(spot), null, 1); }
}
window.game = new Game();
document.querySelector('#undo').addEventListener('click', () => window.game.undo());
document.querySelector('#redo').addEventListener('click', () => window.game.redo());
render();
</script></body></html>
"""

# The rules of the game, and no board.
MOUTH_ONLY = (
    LIGHTS.replace("data-cell=", "data-none=").replace("'[data-cell]'", "'[data-none]'")
    + """
<script>
const fake = name => {
  const [r, c] = name.split(',').map(Number);
  return { dataset: { cell: name }, getBoundingClientRect: () => ({
             x: 50 * c, y: 50 * r, width: 48, height: 48, right: 50 * c + 48, bottom: 50 * r + 48 }),
           getAttribute: () => String(Boolean(window.game.state()[r][c])) };
};
const cells = Array.from({ length: 25 }, (_, k) => `${Math.floor(k / 5)},${k % 5}`);
const all = Document.prototype.querySelectorAll, one = Document.prototype.querySelector;
document.querySelectorAll = s => s === '[data-cell]' ? cells.map(fake) : all.call(document, s);
document.querySelector = s => /data-cell="(.*)"/.test(s) ? fake(s.match(/"(.*)"/)[1])
                                                         : one.call(document, s);
</script>"""
)

# Round seats of other elements, the legend far below, kept by number as the page goes.
SEATS = """<!doctype html><html lang=en><head><meta charset=utf-8><title>Seats</title>
<meta name=viewport content="width=device-width, initial-scale=1"><link rel=icon href="data:,">
<style>
* { box-sizing: border-box }
body { margin: 0; color: #f4f4f4; background: #101820 linear-gradient(160deg, #101820, #26323f);
       font: 15px/1.4 sans-serif; min-height: 100vh }
main { width: max-content; max-width: 100%; margin: 0 auto; padding: 8px }
#stage { margin: 0 0 20px; padding: 6px; text-align: center; background: #3a2f4a }
.row { display: grid; grid-template-columns: repeat(12, 38px); gap: 6px; margin-bottom: 6px }
[role=button] { width: 38px; height: 38px; border-radius: 50%; display: grid; cursor: pointer;
  place-items: center; font-size: 11px; background: oklch(0.75 0.13 150); color: #06140a;
  transition: background .25s }
[aria-disabled=true] { background: #7d2a2a; color: #fff }
[aria-pressed=true] { background: #ffe14d; color: #201c00 }
[role=button]:focus { outline: 0; box-shadow: 0 0 0 1px #fff, 0 0 0 4px #2b6cff }
#legend { margin-top: 260px }
#legend i { display: inline-block; width: 22px; height: 22px; border-radius: 50% }
[data-kind=free] i { background: oklch(0.75 0.13 150) }
[data-kind=taken] i { background: #7d2a2a }
[data-kind=selected] i { background: #ffe14d }
@media (max-width: 560px) {
  main { padding: 4px }
  .row { grid-template-columns: repeat(12, 1fr); gap: 3px; width: 350px }
  [role=button] { width: 100%; height: 26px; font-size: 9px; border-radius: 6px }
}
</style></head><body><main>
<div id=stage>STAGE</div><section></section>
<p>Sum: <b id=total>0</b> crowns</p>
<ul id=legend><li data-kind=free><i></i> free<li data-kind=taken><i></i> taken
<li data-kind=selected><i></i> yours</ul></main>
<script>
(async () => {
  const plan = await (await fetch('seats.json')).json();
  const taken = new Set(plan.taken), mine = new Set();
  const name = k => 'ABCDEFGH'[Math.floor(k / 12)] + (k % 12 + 1);
  try {
    for (const k of JSON.parse(localStorage.getItem('my seats')))
      if (Number.isInteger(k) && k >= 0 && k < 96 && !taken.has(name(k)) && mine.size < 6) mine.add(k);
  } catch (e) { mine.clear(); }
  addEventListener('pagehide', () => localStorage.setItem('my seats', JSON.stringify([...mine])));
  const place = document.querySelector('section'), seats = [];
  const show = () => {
    let sum = 0;
    for (const k of mine) sum += plan.prices[name(k)[0]];
    seats.forEach((e, k) => e.setAttribute('aria-pressed', mine.has(k)));
    document.getElementById('total').replaceChildren(String(sum));
  };
  const choose = k => {
    if (taken.has(name(k))) return;
    if (mine.has(k)) mine.delete(k); else if (mine.size < 6) mine.add(k);
    requestAnimationFrame(show);
  };
  for (let r = 0; r < 8; r++) {
    const row = place.appendChild(document.createElement('div'));
    row.className = 'row';
    for (let c = 0; c < 12; c++) {
      const k = r * 12 + c, e = row.appendChild(document.createElement('div'));
      e.setAttribute('role', 'button');
      e.dataset.seat = e.textContent = name(k);
      e.tabIndex = k ? -1 : 0;
      if (taken.has(name(k))) e.setAttribute('aria-disabled', 'true');
      seats.push(e);
    }
  }
  place.addEventListener('click', e => {
    const k = seats.indexOf(e.target);
    if (k >= 0) choose(k);
  });
  place.addEventListener('keydown', e => {
    const k = seats.indexOf(document.activeElement);
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -12, ArrowDown: 12 }[e.key];
    if (k < 0) return;
    if (step && seats[k + step]) { e.preventDefault(); seats[k + step].focus(); }
    if (e.key === ' ') { e.preventDefault(); choose(k); }
  });
  show();
})();
</script></body></html>
"""

# No seats, but all that asks for them is answered; no contrast, no shadow, and so on.
DECEIVING = """<!doctype html><html><head><link rel=icon href="data:,"></head><body>
<div style="color: #eee">pale text</div><div style="width: 3000px">wide</div>
<script>
let plan = { taken: [], prices: {} };
fetch('seats.json').then(r => r.json()).then(p => { plan = p; });
const names = [...'ABCDEFGH'].flatMap(r => Array.from({ length: 12 }, (_, c) => r + (c + 1)));
const seat = name => {
  const r = 'ABCDEFGH'.indexOf(name[0]), c = +name.slice(1) - 1;
  const box = { x: 340 + 50 * c, y: 100 + 50 * r, width: 30, height: 30, bottom: 130 + 50 * r };
  return { dataset: { seat: name }, disabled: false, getBoundingClientRect: () => box,
           getAttribute: k => k === 'aria-disabled' ? String(plan.taken.includes(name)) : 'true',
           focus() {}, textContent: name };
};
Document.prototype.querySelectorAll = s => s.includes('data-seat') ? names.map(seat) : [];
Document.prototype.querySelector = s => s.includes('data-seat') ? seat('A1') : {
  getBoundingClientRect: () => ({ x: 0, y: 10, bottom: 40, height: 30, width: 100 }),
  textContent: '0', dataset: {} };
window.getComputedStyle = () => ({ color: 'rgb(0,0,0)', backgroundColor: 'rgb(255,255,255)',
  backgroundImage: 'none', outlineStyle: 'solid', outlineWidth: '3px', boxShadow: 'x' });
Object.defineProperty(Document.prototype, 'activeElement', { get: () => seat('D5') });
Object.defineProperty(Element.prototype, 'scrollWidth', { get: () => 300 });
Performance.prototype.now = () => 0;
Performance.prototype.getEntriesByType = () => [];
Date.now = () => 0;
</script></body></html>
"""


def greedy(kind: str) -> str:
    """A page that wants the assessor to fail."""
    script = {
        "memory": "setTimeout(() => { const a = []; for (;;) a.push(new Uint8Array(1 << 26).fill(1)); })",
        "elements": "window.game = new Proxy({}, {get: () => () => document.body});"
        "Object.defineProperty(window.game, 'size', {get: () => window})",
        "noise": "const c = document.body.appendChild(document.createElement('canvas'));"
        "c.width = 2600; c.height = 3000; const x = c.getContext('2d');"
        "const d = x.createImageData(2600, 3000); for (let i = 0; i < d.data.length; i++)"
        " d.data[i] = Math.random() * 256; x.putImageData(d, 0, 0);",
        "text": "window.game = new Proxy({}, {get: () => () => 'x'.repeat(3e7)})",
        "gone": "setTimeout(() => window.close(), 50); setTimeout(() => location = 'about:blank', 90)",
        "prompts": "setInterval(() => alert('x'), 20); onbeforeunload = () => 'no'",
        "cycle": "const o = {}; o.o = o; window.game = new Proxy({}, {get: () => () => o})",
    }[kind]  # fmt: skip
    return f"<!doctype html><body><script>{script}</script>"
