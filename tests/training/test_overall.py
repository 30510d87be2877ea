from multimdm.training.overall import Overall


def test_time_left_counts_only_what_this_process_did(monkeypatch, capsys):
    """Half of the first stage was done before; the second half took 10 s, and the other stage is twice as long."""
    now = 0.0
    monkeypatch.setattr("multimdm.training.overall.time.monotonic", lambda: now)
    with Overall({"first": 1.0, "second": 2.0}) as overall:
        overall.begin("first", "the first", share=0.5)
        now = 10.0
        overall.done(1.0, "numbers")
    assert "about 0:00:40 left in all" in capsys.readouterr().err


def test_stages_of_other_processes_take_no_time_of_ours(monkeypatch, capsys):
    now = 0.0
    monkeypatch.setattr("multimdm.training.overall.time.monotonic", lambda: now)
    with Overall({"theirs": 100.0, "ours": 1.0, "last": 3.0}) as overall:
        overall.skip("theirs")
        overall.begin("ours", "ours")
        now = 10.0
        overall.done(1.0, "numbers")
        assert "about 0:00:30 left in all" in capsys.readouterr().err
        overall.begin("last", "the last")
        assert "[3/3] the last" in capsys.readouterr().err
