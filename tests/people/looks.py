"""What a page looks like to people who see poorly or use no mouse: contrast, alternative texts, reach of controls.

Contrast is that of WCAG 2.2, of the colours that the browser has computed: 1.4.3 for text, 1.4.11 for graphics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

TEXT, GRAPHICS = 4.5, 3.0
_MEASURED = """([text, graphics]) => {
  const parsed = colour => {
    const found = colour.match(/[\\d.]+/g);
    if (!found || colour === "none") return [0, 0, 0, 0];
    const scale = colour.startsWith("color(") ? 255 : 1;
    const [r, g, b, a = 1] = found.slice(0, 4).map(Number);
    return [r * scale, g * scale, b * scale, a];
  };
  const over = (top, below) => [0, 1, 2].map(k => top[3] * top[k] + (1 - top[3]) * below[k]).concat(1);
  const canvas = () => matchMedia("(prefers-color-scheme: dark)").matches
    && getComputedStyle(document.documentElement).colorScheme.includes("dark") ? [18, 18, 18, 1] : [255, 255, 255, 1];
  const behind = element => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parsed(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), canvas());
  };
  const opacity = element => {
    let found = 1;
    for (let at = element; at; at = at.parentElement) found *= Number(getComputedStyle(at).opacity);
    return found;
  };
  const light = colour => {
    const [r, g, b] = colour.slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (colour, element, ground) => {
    const own = parsed(colour), shown = over([...own.slice(0, 3), own[3] * opacity(element)], ground);
    const [high, low] = [light(shown), light(ground)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const faint = new Set();
  const note = (found, least, what) => { if (found < least) faint.add(`${found.toFixed(2)}: ${what}`); };
  const seen = element => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (nodes.nextNode()) {
    const element = nodes.currentNode.parentElement, words = nodes.currentNode.textContent.trim();
    if (!words || !seen(element) || element.closest(":disabled, script, style")) continue;
    const style = getComputedStyle(element), svg = element instanceof SVGElement;
    note(ratio(svg ? style.fill : style.color, element, behind(element)), text, words.slice(0, 60));
  }
  const shapes = "svg :is(line, path, polyline, polygon, circle, rect):not(.rule, .grid)";
  for (const shape of document.querySelectorAll(shapes)) {
    const style = getComputedStyle(shape);
    if (!seen(shape) || Number(style.opacity) < 0.5) continue;  // bands of intervals lie behind their curves
    const parts = [style.stroke, style.fill].filter(colour => parsed(colour)[3] > 0);
    if (parts.length) note(Math.max(...parts.map(colour => ratio(colour, shape, behind(shape)))), graphics,
      `${shape.tagName} ${parts.join(" ")}`);
  }
  for (const key of document.querySelectorAll(".key, .dot")) {
    const style = getComputedStyle(key), ground = behind(key.parentElement);
    if (seen(key)) note(Math.max(ratio(style.backgroundColor, key, ground), ratio(style.borderTopColor, key, ground)),
      graphics, `key of ${key.parentElement.textContent.trim().slice(0, 40)}`);
  }
  return [...faint].sort();
}"""
_CONTROLS = "a[href], button, input, select, textarea, summary, [tabindex]"
_REACHABLE = f"""() => [...document.querySelectorAll("{_CONTROLS}")].filter(
  each => each.checkVisibility({{ visibilityProperty: true }}) && !each.disabled && each.tabIndex >= 0
    && each.type !== "radio")"""


def faint(page: Page) -> list[str]:
    """Each text and graphic whose contrast with what is behind it is too low, with the ratio."""
    found: list[str] = page.evaluate(_MEASURED, [TEXT, GRAPHICS])
    return found


def without_words(page: Page) -> list[str]:
    """Pictures without an alternative text, and controls without a name."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("img, svg[role=img], a[href], button, input, textarea")].filter(each => {
          if (!each.checkVisibility({ visibilityProperty: true })) return false;
          const words = [each.alt, each.getAttribute("aria-label"), each.title, each.innerText,
            ...[...(each.labels || [])].map(label => label.innerText)];
          return !words.some(word => word && word.trim());
        }).map(each => each.outerHTML.slice(0, 80))"""
    )
    return found


def out_of_reach(page: Page) -> list[str]:
    """Controls that the tabulator does not reach, or that do not show that they have the focus."""
    count = page.evaluate(f"({_REACHABLE})().length")
    page.evaluate("document.activeElement.blur(); window.reached = new Set(); window.unmarked = new Set();")
    for _ in range(count + 2):
        page.keyboard.press("Tab")
        page.evaluate(
            """() => {
              const now = document.activeElement, style = getComputedStyle(now);
              if (now === document.body) return;
              window.reached.add(now);
              if (style.outlineStyle === "none" && style.boxShadow === "none") window.unmarked.add(now);
            }"""
        )
    found: list[str] = page.evaluate(
        f"""() => [...({_REACHABLE})().filter(each => !window.reached.has(each)), ...window.unmarked]
        .map(each => each.outerHTML.slice(0, 80))"""
    )
    return found
