"""Facts about companies, films, directors and books."""

from __future__ import annotations

from deepjoin.demo.sheets import records

#: Company with its legal form, the name people use, share ticker, country (ISO-2), industry.
COMPANIES = records("""
Apple Inc.|Apple|AAPL|US|Technology
Microsoft Corporation|Microsoft|MSFT|US|Technology
Alphabet Inc.|Alphabet (Google)|GOOGL|US|Technology
Amazon.com, Inc.|Amazon|AMZN|US|Retail
Meta Platforms, Inc.|Meta|META|US|Technology
NVIDIA Corporation|Nvidia|NVDA|US|Semiconductors
Tesla, Inc.|Tesla|TSLA|US|Automotive
Intel Corporation|Intel Corp|INTC|US|Semiconductors
International Business Machines Corporation|IBM|IBM|US|Technology
Oracle Corporation|Oracle Corp.|ORCL|US|Technology
Cisco Systems, Inc.|Cisco|CSCO|US|Technology
The Coca-Cola Company|Coca-Cola|KO|US|Beverages
PepsiCo, Inc.|Pepsico|PEP|US|Beverages
McDonald's Corporation|McDonalds|MCD|US|Restaurants
Nike, Inc.|Nike|NKE|US|Apparel
The Walt Disney Company|Disney|DIS|US|Media
Pfizer Inc.|Pfizer|PFE|US|Pharmaceuticals
Johnson & Johnson|Johnson and Johnson|JNJ|US|Pharmaceuticals
The Boeing Company|Boeing|BA|US|Aerospace
Caterpillar Inc.|Caterpillar|CAT|US|Machinery
Ford Motor Company|Ford|F|US|Automotive
General Motors Company|GM|GM|US|Automotive
JPMorgan Chase & Co.|JP Morgan|JPM|US|Banking
The Procter & Gamble Company|Procter and Gamble|PG|US|Consumer goods
Starbucks Corporation|Starbucks|SBUX|US|Restaurants
Netflix, Inc.|Netflix|NFLX|US|Media
Siemens AG|Siemens|SIE|DE|Engineering
SAP SE|SAP|SAP|DE|Technology
Volkswagen AG|Volkswagen|VOW3|DE|Automotive
Bayerische Motoren Werke AG|BMW|BMW|DE|Automotive
BASF SE|BASF|BAS|DE|Chemicals
Bayer AG|Bayer|BAYN|DE|Pharmaceuticals
adidas AG|Adidas|ADS|DE|Apparel
Allianz SE|Allianz|ALV|DE|Insurance
Deutsche Bank AG|Deutsche Bank|DBK|DE|Banking
Deutsche Telekom AG|Telekom|DTE|DE|Telecommunications
Robert Bosch GmbH|Bosch||DE|Engineering
L'Oréal S.A.|L'Oreal|OR|FR|Consumer goods
TotalEnergies SE|Total Energies|TTE|FR|Energy
Sanofi S.A.|Sanofi|SAN|FR|Pharmaceuticals
Danone S.A.|Danone|BN|FR|Food
BNP Paribas S.A.|BNP Paribas|BNP|FR|Banking
Nestlé S.A.|Nestle|NESN|CH|Food
Novartis AG|Novartis|NOVN|CH|Pharmaceuticals
Roche Holding AG|Roche|ROG|CH|Pharmaceuticals
UBS Group AG|UBS|UBSG|CH|Banking
Unilever PLC|Unilever|ULVR|GB|Consumer goods
HSBC Holdings plc|HSBC|HSBA|GB|Banking
AstraZeneca PLC|Astra Zeneca|AZN|GB|Pharmaceuticals
Vodafone Group Plc|Vodafone|VOD|GB|Telecommunications
Tesco PLC|Tesco|TSCO|GB|Retail
ASML Holding N.V.|ASML|ASML|NL|Semiconductors
Koninklijke Philips N.V.|Philips|PHIA|NL|Medical technology
Heineken N.V.|Heineken|HEIA|NL|Beverages
AB Volvo|Volvo|VOLV B|SE|Machinery
Novo Nordisk A/S|Novo Nordisk|NOVO B|DK|Pharmaceuticals
Nokia Oyj|Nokia|NOKIA|FI|Telecommunications
Equinor ASA|Equinor|EQNR|NO|Energy
Banco Santander, S.A.|Santander|SAN|ES|Banking
Telefónica, S.A.|Telefonica|TEF|ES|Telecommunications
Eni S.p.A.|Eni|ENI|IT|Energy
Enel S.p.A.|Enel|ENEL|IT|Energy
Toyota Motor Corporation|Toyota|7203|JP|Automotive
Sony Group Corporation|Sony|6758|JP|Technology
Nintendo Co., Ltd.|Nintendo|7974|JP|Technology
Honda Motor Co., Ltd.|Honda|7267|JP|Automotive
Samsung Electronics Co., Ltd.|Samsung|005930|KR|Technology
Hyundai Motor Company|Hyundai|005380|KR|Automotive
Infosys Limited|Infosys|INFY|IN|Technology
BHP Group Limited|BHP|BHP|AU|Mining
Vale S.A.|Vale|VALE3|BR|Mining
""")

#: Title, year, director.
FILMS = records("""
Metropolis|1927|Fritz Lang
M|1931|Fritz Lang
Citizen Kane|1941|Orson Welles
Casablanca|1942|Michael Curtiz
Bicycle Thieves|1948|Vittorio De Sica
The Third Man|1949|Carol Reed
Rashomon|1950|Akira Kurosawa
Rear Window|1954|Alfred Hitchcock
Seven Samurai|1954|Akira Kurosawa
The Bridge on the River Kwai|1957|David Lean
The Seventh Seal|1957|Ingmar Bergman
Wild Strawberries|1957|Ingmar Bergman
Vertigo|1958|Alfred Hitchcock
North by Northwest|1959|Alfred Hitchcock
Some Like It Hot|1959|Billy Wilder
The 400 Blows|1959|François Truffaut
Breathless|1960|Jean-Luc Godard
La Dolce Vita|1960|Federico Fellini
Psycho|1960|Alfred Hitchcock
Lawrence of Arabia|1962|David Lean
8½|1963|Federico Fellini
The Birds|1963|Alfred Hitchcock
2001: A Space Odyssey|1968|Stanley Kubrick
A Clockwork Orange|1971|Stanley Kubrick
The Godfather|1972|Francis Ford Coppola
The Godfather Part II|1974|Francis Ford Coppola
Jaws|1975|Steven Spielberg
Taxi Driver|1976|Martin Scorsese
Alien|1979|Ridley Scott
Apocalypse Now|1979|Francis Ford Coppola
Raging Bull|1980|Martin Scorsese
The Shining|1980|Stanley Kubrick
Blade Runner|1982|Ridley Scott
E.T. the Extra-Terrestrial|1982|Steven Spielberg
The Terminator|1984|James Cameron
Back to the Future|1985|Robert Zemeckis
Ran|1985|Akira Kurosawa
Aliens|1986|James Cameron
My Neighbor Totoro|1988|Hayao Miyazaki
Goodfellas|1990|Martin Scorsese
The Silence of the Lambs|1991|Jonathan Demme
Jurassic Park|1993|Steven Spielberg
Schindler's List|1993|Steven Spielberg
The Piano|1993|Jane Campion
Forrest Gump|1994|Robert Zemeckis
Pulp Fiction|1994|Quentin Tarantino
The Shawshank Redemption|1994|Frank Darabont
Life Is Beautiful|1997|Roberto Benigni
Titanic|1997|James Cameron
Run Lola Run|1998|Tom Tykwer
Gladiator|2000|Ridley Scott
Memento|2000|Christopher Nolan
Amélie|2001|Jean-Pierre Jeunet
Spirited Away|2001|Hayao Miyazaki
The Lord of the Rings: The Fellowship of the Ring|2001|Peter Jackson
Kill Bill: Volume 1|2003|Quentin Tarantino
Lost in Translation|2003|Sofia Coppola
Oldboy|2003|Park Chan-wook
Pan's Labyrinth|2006|Guillermo del Toro
The Departed|2006|Martin Scorsese
The Lives of Others|2006|Florian Henckel von Donnersmarck
The Dark Knight|2008|Christopher Nolan
Avatar|2009|James Cameron
Inglourious Basterds|2009|Quentin Tarantino
Inception|2010|Christopher Nolan
Interstellar|2014|Christopher Nolan
The Martian|2015|Ridley Scott
The Shape of Water|2017|Guillermo del Toro
Roma|2018|Alfonso Cuarón
Parasite|2019|Bong Joon-ho
""")

#: Director, year of birth, country of birth (ISO-2).
DIRECTORS = records("""
Agnès Varda|1928|BE
Akira Kurosawa|1910|JP
Alfonso Cuarón|1961|MX
Alfred Hitchcock|1899|GB
Bong Joon-ho|1969|KR
Carol Reed|1906|GB
Christopher Nolan|1970|GB
David Lean|1908|GB
Denis Villeneuve|1967|CA
Federico Fellini|1920|IT
Florian Henckel von Donnersmarck|1973|DE
Francis Ford Coppola|1939|US
François Truffaut|1932|FR
Fritz Lang|1890|AT
George Miller|1945|AU
Guillermo del Toro|1964|MX
Hayao Miyazaki|1941|JP
Ingmar Bergman|1918|SE
James Cameron|1954|CA
Jane Campion|1954|NZ
Jean-Luc Godard|1930|FR
Jean-Pierre Jeunet|1953|FR
Jonathan Demme|1944|US
Martin Scorsese|1942|US
Michael Curtiz|1886|HU
Orson Welles|1915|US
Park Chan-wook|1963|KR
Pedro Almodóvar|1949|ES
Peter Jackson|1961|NZ
Quentin Tarantino|1963|US
Ridley Scott|1937|GB
Roberto Benigni|1952|IT
Satyajit Ray|1921|IN
Sofia Coppola|1971|US
Stanley Kubrick|1928|US
Steven Spielberg|1946|US
Tom Tykwer|1965|DE
Vittorio De Sica|1901|IT
Werner Herzog|1942|DE
Wim Wenders|1945|DE
""")

#: Title, author, year of first publication.
BOOKS = records("""
Don Quixote|Miguel de Cervantes|1605
Pride and Prejudice|Jane Austen|1813
Emma|Jane Austen|1815
Frankenstein|Mary Shelley|1818
Jane Eyre|Charlotte Brontë|1847
Wuthering Heights|Emily Brontë|1847
The Scarlet Letter|Nathaniel Hawthorne|1850
Moby-Dick|Herman Melville|1851
A Tale of Two Cities|Charles Dickens|1859
Great Expectations|Charles Dickens|1861
Les Misérables|Victor Hugo|1862
Crime and Punishment|Fyodor Dostoevsky|1866
War and Peace|Leo Tolstoy|1869
Anna Karenina|Leo Tolstoy|1878
Dracula|Bram Stoker|1897
Buddenbrooks|Thomas Mann|1901
Dubliners|James Joyce|1914
Kokoro|Natsume Sōseki|1914
The Metamorphosis|Franz Kafka|1915
Ulysses|James Joyce|1922
The Magic Mountain|Thomas Mann|1924
The Great Gatsby|F. Scott Fitzgerald|1925
The Trial|Franz Kafka|1925
Mrs Dalloway|Virginia Woolf|1925
The Sun Also Rises|Ernest Hemingway|1926
To the Lighthouse|Virginia Woolf|1927
Brave New World|Aldous Huxley|1932
The Hobbit|J. R. R. Tolkien|1937
The Grapes of Wrath|John Steinbeck|1939
The Stranger|Albert Camus|1942
The Little Prince|Antoine de Saint-Exupéry|1943
Animal Farm|George Orwell|1945
Pippi Longstocking|Astrid Lindgren|1945
The Plague|Albert Camus|1947
Nineteen Eighty-Four|George Orwell|1949
The Catcher in the Rye|J. D. Salinger|1951
The Old Man and the Sea|Ernest Hemingway|1952
Things Fall Apart|Chinua Achebe|1958
The Tin Drum|Günter Grass|1959
To Kill a Mockingbird|Harper Lee|1960
One Hundred Years of Solitude|Gabriel García Márquez|1967
The Name of the Rose|Umberto Eco|1980
Midnight's Children|Salman Rushdie|1981
The House of the Spirits|Isabel Allende|1982
Love in the Time of Cholera|Gabriel García Márquez|1985
The Handmaid's Tale|Margaret Atwood|1985
Beloved|Toni Morrison|1987
Norwegian Wood|Haruki Murakami|1987
The God of Small Things|Arundhati Roy|1997
""")
