"""Rules of a follower, pure: state of one partition, decisions about pushed entries and answers of leaders."""
