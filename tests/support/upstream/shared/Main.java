import java.io.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.LocalDateTime;
import java.util.*;
import java.util.function.*;
import java.util.stream.*;

/**
 * Another console for tasks, with menus within menus and one database for all users; for tests.
 * Rows of data/tasks.db: owner, id, title, description, created, status, priority, deadline, tags,
 * archived; divided by tabs. Identifiers count upwards for each owner.
 */
public class Main {
    static final Scanner IN = new Scanner(System.in);
    static final Path USERS = Paths.get("data", "users.txt"), TASKS = Paths.get("data", "tasks.db");
    static String user;

    static class Ended extends RuntimeException {}

    static String prompt(String words) {
        System.out.print(words);
        System.out.flush();
        if (!IN.hasNextLine()) throw new Ended();
        return IN.nextLine().strip();
    }

    /** Reads, changes and writes a file while nobody else does; null leaves it as it is. */
    static List<String> locked(Path path, UnaryOperator<List<String>> change) {
        try (FileChannel channel = FileChannel.open(path, StandardOpenOption.CREATE,
                StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            if (path.equals(TASKS)) System.out.println("[DEBUG] waiting for the lock of " + path);
            try (FileLock lock = channel.lock()) {
                ByteBuffer held = ByteBuffer.allocate((int) channel.size());
                while (held.hasRemaining() && channel.read(held) >= 0) { }
                String text = new String(held.array(), StandardCharsets.UTF_8);
                List<String> rows = text.isBlank() ? new ArrayList<>() : text.lines().collect(Collectors.toList());
                List<String> made = change == null ? null : change.apply(rows);
                if (made == null) return rows;
                byte[] out = (String.join("\n", made) + "\n").getBytes(StandardCharsets.UTF_8);
                channel.truncate(0);
                channel.write(ByteBuffer.wrap(out), 0);
                channel.force(true);
                return made;
            }
        } catch (IOException fault) { throw new UncheckedIOException(fault); }
    }

    static Stream<String[]> mine() {
        return locked(TASKS, null).stream().map(row -> row.split("\t", -1)).filter(row -> row[0].equals(user));
    }

    static void print(Stream<String[]> rows) {
        List<String[]> all = rows.collect(Collectors.toList());
        if (all.isEmpty()) System.out.println("(no tasks)");
        for (String[] r : all) {
            System.out.printf("Task ID: %s%n    Title: %s%n    Description: %s%n    Created: %s | Status: %s%n", r[1], r[2], r[3], r[4], r[5]);
            System.out.printf("    Priority: %s | Deadline: %s | Tags: %s%n", r[6], r[7], r[8]);
        }
    }

    /** Changes one of the user's rows; whether there is one. */
    static boolean edit(String id, Function<String[], String[]> change) {
        boolean[] found = {false};
        locked(TASKS, rows -> {
            List<String> made = new ArrayList<>();
            for (String row : rows) {
                String[] parts = row.split("\t", -1);
                if (!parts[0].equals(user) || !parts[1].equals(id)) { made.add(row); continue; }
                found[0] = true;
                String[] changed = change.apply(parts);
                if (changed != null) made.add(String.join("\t", changed));
            }
            return made;
        });
        if (!found[0]) System.out.println("No such task.");
        return found[0];
    }

    static void add() {
        String title = prompt("Enter the title: "), text = prompt("Enter a description: ");
        String priority = prompt("Priority [High/Medium/Low]: "), due = prompt("Deadline (yyyy-mm-dd): ");
        String tags = prompt("Tags, divided by commas: ");
        locked(TASKS, rows -> {
            int id = rows.stream().map(r -> r.split("\t", -1)).filter(r -> r[0].equals(user)).mapToInt(r -> Integer.parseInt(r[1])).max().orElse(100) + 1;
            rows.add(String.join("\t", user, "" + id, title, text, LocalDateTime.now().toString(), "Pending", priority, due, tags, "no"));
            return rows;
        });
        System.out.println("Task added.");
    }

    static boolean command(String line) {
        String[] words = line.split("\\s+", 2);
        String rest = words.length > 1 ? words[1] : "";
        Predicate<String[]> open = r -> r[9].equals("no");
        switch (words[0].toLowerCase()) {
            case "/filter": {
                String[] pair = (rest + "= ").split("=");
                if (pair[0].equals("priority")) print(mine().filter(open.and(r -> r[6].equalsIgnoreCase(pair[1].strip()))));
                else print(mine().filter(open.and(r -> List.of(r[8].split("\\s*,\\s*")).contains(pair[1].strip()))));
                return true;
            }
            case "/sort": print(mine().filter(open).sorted(Comparator.comparing(r -> r[7]))); return true;
            case "/search": {
                String part = rest.toLowerCase();
                print(mine().filter(r -> r[2].toLowerCase().contains(part) || r[3].toLowerCase().contains(part)));
                return true;
            }
            case "/archive":
                if (edit(rest, r -> { r[9] = "yes"; return r; })) System.out.println("Task archived, hiding it from the main list.");
                return true;
            case "/unarchive":
                if (edit(rest, r -> { r[9] = "no"; return r; })) System.out.println("Task is back.");
                return true;
            case "/refresh": System.out.println("Loaded latest data: " + mine().count() + " tasks."); return true;
            default: return false;
        }
    }

    static void tasks() {
        while (true) {
            System.out.println("\n--- Your tasks ---\n  a) Add a task\n  l) List tasks\n  c) Complete a task\n  d) Delete a task\n  b) Back");
            String choice = prompt("Your choice> ");
            if (command(choice)) continue;
            switch (choice) {
                case "a": add(); break;
                case "l": print(mine().filter(r -> r[9].equals("no"))); break;
                case "c": {
                    String id = prompt("Task ID to complete: ");
                    if (edit(id, r -> { r[5] = "Completed"; return r; })) System.out.println("Task " + id + " marked Completed");
                    break;
                }
                case "d": {
                    String id = prompt("Task ID to delete: ");
                    if (prompt("Are you sure? (y/n) ").equals("y") && edit(id, r -> null)) System.out.println("Task " + id + " deleted");
                    break;
                }
                case "b": return;
                default: System.out.println("That is no choice.");
            }
        }
    }

    /** The main menu; whether the program ends. */
    static boolean signedIn() {
        while (true) {
            System.out.println("\n=== Main Menu (" + user + ") ===\n  1) View tasks\n  2) Logout\n  3) Exit");
            String choice = prompt("Your choice> ");
            if (command(choice)) continue;
            if (choice.equals("1")) tasks();
            else if (choice.equals("2")) return false;
            else if (choice.equals("3")) return true;
            else System.out.println("That is no choice.");
        }
    }

    static void register() {
        String name = prompt("Choose a username: ");
        String pw = prompt("Choose a password: "), again = prompt("Repeat it: ");
        boolean[] done = {false};
        locked(USERS, rows -> {
            boolean taken = rows.stream().anyMatch(r -> r.startsWith(name + ":"));
            if (taken || name.isEmpty() || pw.isEmpty() || !pw.equals(again)) return null;
            rows.add(name + ":" + pw);
            done[0] = true;
            return rows;
        });
        System.out.println(done[0] ? "Registration successful!" : "That cannot be registered.");
    }

    static boolean login() {
        String name = prompt("Username: "), pw = prompt("Password: ");
        if (!locked(USERS, null).contains(name + ":" + pw)) { System.out.println("Invalid username or password. Try again."); return false; }
        user = name;
        System.out.println("Login successful!");
        return signedIn();
    }

    public static void main(String[] args) throws IOException {
        Files.createDirectories(USERS.getParent());
        try {
            boolean over = false;
            if (args.length == 2 && args[0].equals("--user")) { user = args[1]; over = signedIn(); }
            while (!over) {
                System.out.println("\nWelcome to the tasks\n  1) Register\n  2) Login\n  3) Exit");
                switch (prompt("Your choice> ")) {
                    case "1": register(); break;
                    case "2": over = login(); break;
                    case "3": over = true; break;
                    default: System.out.println("That is no choice.");
                }
            }
        } catch (Ended end) { System.out.println(); }
        System.out.println("Goodbye!");
    }
}
