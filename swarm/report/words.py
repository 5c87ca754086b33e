"""Numbers as a reader wants them. Every function is a filter of the page's templates."""

from ckb.records import Choice

DASH = "–"
"""What stands where there is no value."""


def number(value: float | None) -> str:
    """Three significant digits, thousands separated: 0.0412, 4.12, 42.0, 412, 41,200."""
    if value is None:
        return DASH
    if value == 0:
        return "0"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if abs(value) >= 1e-4 else f"{value:.1e}"


def count(value: int) -> str:
    return f"{value:,}"


def percent(value: float | None) -> str:
    """0.812 -> 81%; below a tenth with one decimal."""
    if value is None:
        return DASH
    return f"{value:.1%}" if abs(value) < 0.1 else f"{value:.0%}"


def signed(value: float | None) -> str:
    """A relative change: +3.4%, −1.2%."""
    return DASH if value is None else f"{value:+.1%}".replace("-", "−")


def times(value: float) -> str:
    """A ratio: 2.31×."""
    return f"{value:.2f}×"


def duration(seconds: float) -> str:
    """68 ms, 4.1 s, 3 min 20 s, 2 h 5 min."""
    if 0 < seconds < 0.1:
        return f"{seconds * 1000:.2g} ms"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def size(value: int) -> str:
    """Bytes as MiB or GiB."""
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def money(usd: float | None) -> str:
    if usd is None:
        return "unknown"
    return f"${usd:,.2f}" if usd == 0 or usd >= 0.01 else f"${usd:.4f}"


def short(digest: str) -> str:
    """The part of a hash that a person compares."""
    return digest[:10]


def choice(value: Choice | None) -> str:
    """A value of a decision, as YAML would write it."""
    if value is None:
        return DASH
    return str(value).lower() if isinstance(value, bool) else str(value)


FILTERS = {f.__name__: f for f in (number, count, percent, signed, duration, size, money, short, choice)}
