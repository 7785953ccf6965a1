"""backend/ledger: a service that moves money, exactly once, through crashes and crowds."""
